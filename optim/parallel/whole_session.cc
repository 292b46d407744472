// A session that holds the whole model, alone or as one of several ranks that all hold it. Chooses the strategies by
// which gradients and state are exchanged.
#include <utility>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "optim/parallel/divided_state.h"
#include "optim/parallel/pipeline/pipeline_session.h"
#include "optim/parallel/reducers.h"
#include "optim/parallel/shard.h"
#include "optim/parallel/tensor/tensor_session.h"
#include "optim/step/session_impl.h"

namespace onnxtrain {
namespace {

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

absl::Status WholeSession::ChooseStrategy() {
  if (!options_.deterministic && options_.plan_ranks == 1) return absl::OkStatus();
  return UseStrategy(nullptr, options_.plan_shard, {0, options_.plan_ranks}, DataParallelOptions().bucket_bytes);
}

absl::Status WholeSession::Distribute(DataParallel* ranks, ShardLevel level) {
  RETURN_IF_ERROR(UseStrategy(ranks, level, {ranks->rank(), ranks->size()}, ranks->options().bucket_bytes));
  if (level == ShardLevel::kNone) return absl::OkStatus();
  if (compiled_.apply != nullptr) programs_.Release(*compiled_.apply);
  compiled_.apply.reset();
  RETURN_IF_ERROR(EnsureApply());
  ReturnFreePages();  // of what was whole
  return absl::OkStatus();
}

absl::Status WholeSession::CheckDividesState(ShardLevel level) const {
  if (level == ShardLevel::kNone) return absl::OkStatus();
  RETURN_IF_ERROR(CheckDivides(options_.optimizer));
  if (level < ShardLevel::kGradients) return absl::OkStatus();
  if (!on_host()) return Invalid("`shard` ", ShardName(level), ": divides gradients on a CPU only");
  if (options_.deterministic) return Invalid("`shard` ", ShardName(level), ": `deterministic` sums whole gradients");
  return absl::OkStatus();
}

// ZeRO-1, 2 and 3 divide more and more of the state: moments, gradients, weights.
absl::Status WholeSession::UseStrategy(DataParallel* ranks, ShardLevel level, const Shard& shard, size_t bucket_bytes) {
  RETURN_IF_ERROR(CheckDividesState(level));
  std::unique_ptr<RankReducer> reducer;
  DividedWeights weights;
  std::vector<ShardUnit> units = state_.WholeUnits(shard.size);
  if (level >= ShardLevel::kGradients) {
    if (level == ShardLevel::kFull) weights = ListDividedWeights(state_, shard.size, bucket_bytes);
    GradientPieces pieces = CutPieces(state_, prepared_.model.graph, dtype_, bucket_bytes, weights, shard.size);
    units = pieces.units();
    reducer = std::make_unique<ShardedReducer>(this, ranks, shard.size, std::move(pieces));
  } else if (options_.deterministic) {
    reducer = std::make_unique<TreeReducer>(this, ranks, shard.size);
  } else {
    reducer = std::make_unique<AllReducer>(this, ranks, shard.size);
  }
  RETURN_IF_ERROR(reducer->Prepare(level == ShardLevel::kFull));
  if (ranks != nullptr && level < ShardLevel::kGradients) RETURN_IF_ERROR(state_.EnsureGradients());
  if (level > ShardLevel::kNone) {
    RETURN_IF_ERROR(state_.DivideMoments(options_.optimizer, shard, std::move(units)));
    shards_ = std::make_unique<DividedState>(options_, &state_, ranks, shard.size);
  }
  if (level >= ShardLevel::kGradients) {
    DropMicroPrograms();
    RETURN_IF_ERROR(state_.DivideGradients());
  }
  if (!weights.empty()) {
    DropPrograms();
    batch_verified_ = true;  // by Init: no program can read whole weights again
    RETURN_IF_ERROR(state_.DivideWeights(weights));
  }
  RETURN_IF_ERROR(reducer->Join());
  for (const auto& ready : compiled_.ready) {
    ready->compiled->program->SetInterruption(Interruption::kNever);
    if (IsMicro(ready->kind)) reducer->Watch(ready.get());
  }
  reducer_ = std::move(reducer);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Create(std::shared_ptr<PreparedModels> models, Backend* backend,
                                                         SessionOptions options) {
  std::unique_ptr<SessionImpl> session;
  if (options.pipeline.on()) {
    session = std::make_unique<PipelineSession>(std::move(models), backend, std::move(options));
  } else if (options.tensor.on()) {
    session = std::make_unique<TensorSession>(std::move(models), backend, std::move(options));
  } else {
    session = std::make_unique<WholeSession>(std::move(models), backend, std::move(options));
  }
  RETURN_IF_ERROR(session->Init());
  return session;
}

}  // namespace onnxtrain
