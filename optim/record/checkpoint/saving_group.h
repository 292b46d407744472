// The ranks that write checkpoints together, on connections of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "backends/collectives.h"

namespace onnxtrain {

class SavingGroup {
 public:
  // Called by all ranks of `training`, which must outlive the group.
  static absl::StatusOr<std::unique_ptr<SavingGroup>> Create(Collectives& training);

  // Called by all ranks together, while no thread uses this group or that of the training: where an operation has
  // failed on any rank, as one that has waited too long for the disk of another, all meet again.
  absl::Status Renew();

  // Until Renew.
  Collectives& ranks() { return *ranks_; }

 private:
  SavingGroup(Collectives& training, std::unique_ptr<Collectives> ranks)
      : training_(training), ranks_(std::move(ranks)) {}

  Collectives& training_;
  std::unique_ptr<Collectives> ranks_;
  int64_t renewals_ = 0;
};

}  // namespace onnxtrain
