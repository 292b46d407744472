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

absl::Status SessionImpl::Distribute(DataParallel* ranks, bool divide_moments) {
  RETURN_IF_ERROR(state_.EnsureGradients());
  if (state_.gradients() != nullptr && !options_.deterministic)
    ranks->SumGradient(&backend_, dtype_, state_.gradients(), ListSlices(state_, prepared_.model.graph));
  for (const auto& ready : ready_) {
    ready->compiled->program->SetInterruption(Interruption::kNever);
    if (IsMicro(ready->kind)) ranks->Watch(ready->compiled->program.get());
  }
  ranks_ = ranks;
  if (!divide_moments) return absl::OkStatus();
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
  std::vector<double> sums(ExchangedSums());
  ranks_->BeginUpdate();
  const absl::Status ran = AccumulateShare(global_batch, share, sums);
  {
    const Span span(trace_, Trace::kTraining, "exchange");
    RETURN_IF_ERROR(ranks_->Exchange(ran, sums));
  }
  RETURN_IF_ERROR(state_.device_scalars().WriteSums(sums));
  Buffer* statistics = state_.pending_statistics();
  if (statistics == nullptr) return absl::OkStatus();
  return ranks_->Mean("all-reduce of statistics", backend_, dtype_, *statistics,
                      static_cast<double>(share.end - share.begin), static_cast<double>(samples));
}

// Stores the losses and the correct predictions of the share in `sums`.
absl::Status SessionImpl::AccumulateShare(const GlobalBatch& global_batch, const SampleRange& share,
                                          std::span<double> sums) {
  RETURN_IF_ERROR(RunMicros(global_batch, ProgramKind::kMicroFirst, nullptr, 0, &share));
  if (share.begin == share.end) RETURN_IF_ERROR(state_.ClearPending());
  RETURN_IF_ERROR(backend_.Synchronize());
  return state_.device_scalars().ReadSums(sums);
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
  for (int64_t i = share.begin; i < share.end; ++i) {
    const MicroBatch& m = micros_[i];
    RETURN_IF_ERROR(RunMicro(ProgramKind::kMicroFirst, m, Key(m.number)).status());
    tree_->Add(static_cast<double>(m.count) / static_cast<double>(samples));
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::RunTree(const GlobalBatch& global_batch, int64_t samples) {
  const absl::Status ran = GrowTree(global_batch, samples);
  if (ranks_ == nullptr) {
    RETURN_IF_ERROR(ran);
    tree_->Finish();
    return absl::OkStatus();
  }
  const Span span(trace_, Trace::kTraining, "exchange");
  std::vector<double> none(ExchangedSums());
  RETURN_IF_ERROR(ranks_->Exchange(ran, none));
  return ranks_->SumTree(&*tree_);
}

}  // namespace onnxtrain
