#include "optim/record/checkpoint/saving_group.h"

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<std::unique_ptr<SavingGroup>> SavingGroup::Create(Collectives& training) {
  ASSIGN_OR_RETURN(auto ranks, NewGroupOfAll(training, "checkpoints"));
  return std::unique_ptr<SavingGroup>(new SavingGroup(training, std::move(ranks)));
}

absl::Status SavingGroup::Renew() {
  constexpr char kBegin[] = "begin of a save";
  double failed = ranks_->Barrier(kBegin).ok() ? 0 : 1;
  RETURN_IF_ERROR(AllReduce(training_, kBegin, {&failed, 1}, Reduction::kMax));
  if (failed == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(ranks_, NewGroupOfAll(training_, StrCat("checkpoints", ++renewals_)));
  return absl::OkStatus();
}

}  // namespace onnxtrain
