// Updates of one of several ranks, and those whose sums do not depend on the number of ranks.
#include <algorithm>
#include <span>
#include <vector>

#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "optim/distributed/data_parallel.h"
#include "optim/session_impl.h"
#include "optim/telemetry/trace.h"

namespace onnxtrain {

// Makes the running averages of several ranks, or in the order of a tree. Programs that are compiled already read them.
absl::Status SessionImpl::ComposeAverages() {
  if (averages_ || state_.pending_statistics() == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(state_.StartStatisticsAtZero());
  averages_.emplace(&backend_, dtype_, state_.running_statistics(), state_.pending_statistics(),
                    state_.running_averages());
  for (const auto& ready : ready_) {
    if (IsMicro(ready->kind)) programs_.Release(*ready->compiled);
  }
  std::erase_if(ready_, [](const auto& ready) { return IsMicro(ready->kind); });
  return absl::OkStatus();
}

absl::Status SessionImpl::Distribute(DataParallel* ranks, ShardLevel shard) {
  RETURN_IF_ERROR(ComposeAverages());
  RETURN_IF_ERROR(state_.EnsureGradients());
  if (state_.gradients() != nullptr && !options_.deterministic)
    ranks->SumGradient(&backend_, dtype_, state_.gradients(), ListSlices(state_, prepared_.model.graph));
  for (const auto& ready : ready_) {
    ready->compiled->program->SetInterruption(Interruption::kNever);
    if (IsMicro(ready->kind)) ranks->Watch(ready->compiled->program.get());
  }
  ranks_ = ranks;
  if (shard == ShardLevel::kNone) return absl::OkStatus();
  RETURN_IF_ERROR(CheckDivides(options_.optimizer));
  RETURN_IF_ERROR(state_.DivideMoments(options_.optimizer, {ranks->rank(), ranks->size()}));
  if (apply_ != nullptr) programs_.Release(*apply_);
  apply_.reset();
  return EnsureApply();
}

// All ranks end alike, whatever happens to one of them.
absl::Status SessionImpl::RunShare(const GlobalBatch& global_batch, int64_t samples) {
  const SampleRange share =
      ShareOfRank(samples, std::max<int64_t>(1, options_.fixed_batch), ranks_->rank(), ranks_->size());
  ranks_->BeginUpdate();
  const absl::Status ran = AccumulateShare(global_batch, share);
  {
    const Span span(trace_, Trace::kTraining, "exchange");
    RETURN_IF_ERROR(ranks_->Exchange(ran, sums_));
  }
  RETURN_IF_ERROR(state_.device_scalars().WriteSums(sums_));
  return averages_ ? averages_->FinishTogether(ranks_->ranks(), "all-reduce of statistics") : absl::OkStatus();
}

// Stores the losses and the correct predictions of the share in `sums_`.
absl::Status SessionImpl::AccumulateShare(const GlobalBatch& global_batch, const SampleRange& share) {
  sums_.assign(ExchangedSums(), 0);
  RETURN_IF_ERROR(RunMicros(global_batch, ProgramKind::kMicroFirst, nullptr, 0, &share));
  if (share.begin == share.end) RETURN_IF_ERROR(state_.ClearPending());
  RETURN_IF_ERROR(backend_.Synchronize());
  return state_.device_scalars().ReadSums(sums_);
}

absl::Status SessionImpl::BeginTree(int64_t micros) {
  RETURN_IF_ERROR(state_.EnsureGradients());
  const int rank = ranks_ != nullptr ? ranks_->rank() : FindLargestTree(micros, options_.plan_ranks);
  if (!tree_) tree_.emplace(&backend_, dtype_, state_.PendingOnHost());
  return tree_->Begin(micros, rank, ranks_ != nullptr ? ranks_->size() : options_.plan_ranks);
}

// Adds the micro-batches of this rank's share, of which none is divided.
absl::Status SessionImpl::GrowTree(const GlobalBatch& global_batch, int64_t samples) {
  RETURN_IF_ERROR(CountTargets(global_batch, samples));
  RETURN_IF_ERROR(BeginTree(std::ssize(CutMicros(global_batch))));
  const SampleRange share = tree_->share();
  if (averages_) averages_->Begin(std::ssize(micros_));
  for (int64_t i = share.begin; i < share.end; ++i) {
    const MicroBatch& m = micros_[i];
    RETURN_IF_ERROR(RunMicro(ProgramKind::kMicroFirst, m, Key(m.number)).status());
    if (averages_) RETURN_IF_ERROR(averages_->Weigh(m.number));
    tree_->Add();
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::RunTree(const GlobalBatch& global_batch, int64_t samples) {
  const absl::Status ran = GrowTree(global_batch, samples);
  if (ranks_ == nullptr) {
    RETURN_IF_ERROR(ran);
    tree_->Finish();
    return averages_ ? averages_->AddAverages() : absl::OkStatus();
  }
  const Span span(trace_, Trace::kTraining, "exchange");
  sums_.assign(ExchangedSums(), 0);
  RETURN_IF_ERROR(ranks_->Exchange(ran, sums_));
  RETURN_IF_ERROR(ranks_->SumTree(&*tree_));
  return averages_ ? averages_->AddAverages() : absl::OkStatus();
}

}  // namespace onnxtrain
