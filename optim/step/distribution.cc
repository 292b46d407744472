#include "optim/step/distribution.h"

#include "optim/step/session_impl.h"

namespace onnxtrain {

absl::Status GradientReducer::PlanUpdate(int64_t samples) { return session_.PlanMicros(samples); }

absl::Status GradientReducer::Accumulate(const GlobalBatch& global_batch, int64_t samples) {
  return session_.RunMicros(global_batch, ProgramKind::kMicroFirst, nullptr);
}

absl::StatusOr<Evaluation> GradientReducer::Evaluate(const GlobalBatch& global_batch) {
  return session_.EvaluateAs(ProgramKind::kEval, global_batch);
}

}  // namespace onnxtrain
