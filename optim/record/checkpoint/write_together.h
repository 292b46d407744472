// One checkpoint that several ranks write, each the parts of the state that it has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "backends/collectives.h"
#include "optim/record/checkpoint/checkpoint_folder.h"

namespace onnxtrain {

// The ranks that write checkpoints together, on connections of their own.

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

// Called by all ranks, with a folder that all of them see. Every rank writes its parts at the same time; rank 0
// completes the checkpoint once all have. `ready`: may this rank begin? All ranks return alike: the error of one that
// could not begin or write, of which nothing is left then but the older checkpoints.
absl::Status WriteTogether(Collectives& ranks, const absl::Status& ready, const CheckpointContent& content,
                           CheckpointFolder* folder);

// Called by all ranks with the folder that rank 0 writes to, by the name that each has for it: do all see the same one,
// and may they write to it? Rank 0 writes a random text, which the others look for.
absl::StatusOr<bool> IsSharedFolder(Collectives& ranks, const std::string& path);

}  // namespace onnxtrain
