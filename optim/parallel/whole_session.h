// A session with all of the model, alone or as one of several ranks that each have it: chooses the strategies by which
// gradients and state are exchanged.
#pragma once

#include "optim/parallel/shard.h"
#include "optim/step/session_impl.h"

namespace onnxtrain {

class WholeSession : public SessionImpl {
 public:
  using SessionImpl::SessionImpl;

  absl::Status Distribute(DataParallel* ranks, ShardLevel level) override;

 protected:
  absl::Status ChooseStrategy() override;

 private:
  absl::Status CheckDividesState(ShardLevel level) const;
  absl::Status UseStrategy(DataParallel* ranks, ShardLevel level, const Shard& shard, size_t bucket_bytes);
};

}  // namespace onnxtrain
