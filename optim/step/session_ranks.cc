// Updates of one of several ranks, and those whose sums do not depend on the number of ranks.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "frontend/base/cancellation.h"
#include "frontend/base/free_pages.h"
#include "frontend/base/status.h"
#include "frontend/ops/random.h"
#include "frontend/passes/collectives.h"
#include "frontend/passes/pass.h"
#include "optim/parallel/data_parallel.h"
#include "optim/parallel/traffic.h"
#include "optim/record/telemetry/trace.h"
#include "optim/step/session_impl.h"

namespace onnxtrain {

// Makes the running averages of several ranks, or in the order of a tree. Programs that are compiled already read them.
absl::Status SessionImpl::ComposeAverages() {
  if (averages_ || state_.pending_statistics() == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(state_.StartStatisticsAtZero());
  averages_.emplace(&backend_, dtype_, state_.running_statistics(), state_.pending_statistics(),
                    state_.running_averages());
  DropMicroPrograms();
  return absl::OkStatus();
}

void SessionImpl::DropMicroPrograms() {
  for (const auto& ready : ready_) {
    if (IsMicro(ready->kind)) programs_.Release(*ready->compiled);
  }
  std::erase_if(ready_, [](const auto& ready) { return IsMicro(ready->kind); });
}

absl::Status SessionImpl::SyncStatistics(PreparedModel* prepared) const {
  std::vector<ValueId> values;
  const Pass sync = {"sync_batch_norm",
                     [&](const Graph& g) { return SyncBatchNorm(g, {.size = CountRanks()}, &values); }};
  ASSIGN_OR_RETURN(prepared->model.graph, RunPasses(prepared->model.graph, {&sync, 1}));
  for (LossTerm& term : prepared->loss.terms) {
    if (term.value != kNoValue) term.value = values[term.value];
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::Distribute(DataParallel* ranks, ShardLevel shard) {
  if (options_.sync_batch_norm || shard == ShardLevel::kFull) {
    RETURN_IF_ERROR(CreateGraphCollectives(ranks->ranks()));
    DropMicroPrograms();
  }
  RETURN_IF_ERROR(ComposeAverages());
  const bool whole = shard < ShardLevel::kGradients;
  if (whole) RETURN_IF_ERROR(state_.EnsureGradients());
  if (state_.gradients() != nullptr && whole && !options_.deterministic)
    RETURN_IF_ERROR(
        ranks->SumGradient(&backend_, dtype_, state_.gradients(), ListSlices(state_, prepared_.model.graph)));
  for (const auto& ready : ready_) {
    ready->compiled->program->SetInterruption(Interruption::kNever);
    if (IsMicro(ready->kind)) ranks->Watch(ready->compiled->program.get());
  }
  ranks_ = ranks;
  RETURN_IF_ERROR(DivideState(shard, {ranks->rank(), ranks->size()}, ranks->options().bucket_bytes));
  if (exchange_ != nullptr || pieces_) ranks->BeginTogether();
  if (pieces_) share_ = std::make_unique<GradientShare>(&ranks->ranks(), &*pieces_, state_, ranks->options().rounds);
  if (shard == ShardLevel::kNone) return absl::OkStatus();
  if (apply_ != nullptr) programs_.Release(*apply_);
  apply_.reset();
  RETURN_IF_ERROR(EnsureApply());
  ReturnFreePages();  // of what was whole
  return absl::OkStatus();
}

// Programs that are compiled from now on meet in a new group.
absl::Status SessionImpl::CreateGraphCollectives(Collectives& ranks) {
  ASSIGN_OR_RETURN(exchange_, GraphExchange::Create(ranks, oom_retries_));
  programs_.BindGroup(kWorldGroup, exchange_->ranks());
  return absl::OkStatus();
}

// Ranks that do not answer in programs are not waited for a second time.
absl::Status SessionImpl::Exchange(const absl::Status& ran) {
  if (LostRanks()) return ranks_->GiveUp(ran);
  const Span span(trace_, Trace::kTraining, "exchange");
  return ranks_->Exchange(ran, sums_);
}

// All ranks end alike, whatever happens to one of them.
absl::Status SessionImpl::RunShare(const GlobalBatch& global_batch, int64_t samples) {
  const SampleRange share =
      ShareOfRank(samples, std::max<int64_t>(1, options_.fixed_batch), ranks_->rank(), ranks_->size());
  ranks_->BeginUpdate();
  RETURN_IF_ERROR(Exchange(AccumulateShare(global_batch, share)));
  RETURN_IF_ERROR(state_.device_scalars().WriteSums(sums_));
  return averages_ ? averages_->FinishTogether(ranks_->ranks(), "all-reduce of statistics") : absl::OkStatus();
}

// Stores the losses and the correct predictions of the share in `sums_`.
absl::Status SessionImpl::AccumulateShare(const GlobalBatch& global_batch, const SampleRange& share) {
  sums_.assign(ExchangedSums(), 0);
  if (exchange_ != nullptr) {
    CutMicros(global_batch);
    exchange_->Begin(CountRounds(global_batch.samples()));
  }
  absl::Status ran = RunMicros(global_batch, ProgramKind::kMicroFirst, nullptr, 0, &share);
  if (exchange_ != nullptr) ran.Update(RunIdle(ProgramKind::kMicroFirst, global_batch));
  RETURN_IF_ERROR(ran);
  if (share.begin == share.end) RETURN_IF_ERROR(state_.ClearPending());
  RETURN_IF_ERROR(backend_.Synchronize());
  return state_.device_scalars().ReadSums(sums_);
}

// Of `micros_`, the micro-batches of all `samples`: how many the rank with most of them runs.
int64_t SessionImpl::CountRounds(int64_t samples) const {
  int64_t rounds = 0;
  for (int r = 0; r < ranks_->size(); ++r) {
    const SampleRange share = ShareOfRank(samples, std::max<int64_t>(1, options_.fixed_batch), r, ranks_->size());
    rounds = std::max(rounds, onnxtrain::CountMicros(share, micros_));
  }
  return rounds;
}

// Takes part in what the programs of other ranks exchange, in all rounds that this rank owes.
absl::Status SessionImpl::RunIdle(ProgramKind kind, const GlobalBatch& global_batch) {
  while (exchange_->IsBehind()) RETURN_IF_ERROR(RunIdleRound(kind, global_batch));
  return absl::OkStatus();
}

// `kind`: kEval, or else any micro program: all of these exchange the same.
absl::Status SessionImpl::RunIdleRound(ProgramKind kind, const GlobalBatch& global_batch) {
  const auto found =
      std::ranges::find_if(ready_, [&](const auto& ready) { return IsMicro(ready->kind) == IsMicro(kind); });
  absl::StatusOr<Ready*> got = found != ready_.end() ? found->get() : nullptr;
  if (found == ready_.end()) got = Get(kind, std::max<int64_t>(1, options_.fixed_batch), FindExtents(global_batch));
  if (!got.ok()) exchange_->Break(got.status());
  ASSIGN_OR_RETURN(Ready * program, got);
  const absl::Status ran = exchange_->RunIdle(program->compiled->program->graph(), state_.bindings());
  CountExchange(program);
  return ran;
}

// Ends a round of a program with collective operators.
void SessionImpl::AddIteration(Ready* program, const absl::Status& ran) {
  if (exchange_ == nullptr) return;
  exchange_->AddIteration(ran);
  CountExchange(program);
}

// Of an update.
void SessionImpl::CountExchange(Ready* program) {
  if (!IsMicro(program->kind)) return;
  if (program->sent_bytes < 0) program->sent_bytes = CountTraffic(program->compiled->program->graph()).bytes;
  ranks_->AddTransfers(program->sent_bytes, 0);
}

void SessionImpl::ShareGradients(Ready* ready) {
  for (const std::string& name : pieces_->outputs) ready->gradients.push_back(&ready->compiled->outputs.at(name));
  Program& program = *ready->compiled->program;
  program.NotifyWhenComplete(FindOutputsUpTo(*pieces_, program.graph()), share_.get());
}

// Runs the share of a rank that keeps its part of the summed gradients only.
absl::Status SessionImpl::RunIterations(const GlobalBatch& global_batch, int64_t samples) {
  const SampleRange share =
      ShareOfRank(samples, std::max<int64_t>(1, options_.fixed_batch), ranks_->rank(), ranks_->size());
  ranks_->BeginUpdate();
  share_->Begin();
  const absl::Status ran = AccumulateRounds(global_batch, samples, share);
  ranks_->AddScattered(*share_, *pieces_);
  RETURN_IF_ERROR(Exchange(ran));
  RETURN_IF_ERROR(state_.device_scalars().WriteSums(sums_));
  ASSIGN_OR_RETURN(const double square, share_->SumSquares());
  RETURN_IF_ERROR(state_.WriteSquaredNorm(square));
  return averages_ ? averages_->FinishTogether(ranks_->ranks(), "all-reduce of statistics") : absl::OkStatus();
}

// Every rank takes part in the rounds of the one with most micro-batches, also after an error of its own.
absl::Status SessionImpl::AccumulateRounds(const GlobalBatch& global_batch, int64_t samples, const SampleRange& share) {
  sums_.assign(ExchangedSums(), 0);
  absl::Status status = CountTargets(global_batch, samples);
  CutMicros(global_batch);
  if (averages_) averages_->Begin(std::ssize(micros_));
  const int64_t rounds = CountRounds(samples);
  if (exchange_ != nullptr) exchange_->Begin(rounds);
  ClipToShare(share, &micros_);
  for (int64_t i = 0; i < rounds && !LostRanks(); ++i) {
    const MicroBatch* const micro = status.ok() && i < std::ssize(micros_) ? &micros_[i] : nullptr;
    status.Update(RunRound(i == 0 ? ProgramKind::kMicroFirst : ProgramKind::kMicroNext, global_batch, micro));
  }
  RETURN_IF_ERROR(status);
  if (micros_.empty()) RETURN_IF_ERROR(state_.ClearPending());
  return state_.device_scalars().ReadSums(sums_);
}

// `micro`: null: this rank has none.
absl::Status SessionImpl::RunRound(ProgramKind kind, const GlobalBatch& global_batch, const MicroBatch* micro) {
  Ready* program = nullptr;
  const auto prepare = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckCancelled());
    ASSIGN_OR_RETURN(program, Get(kind, micro->count, FindExtents(*micro->part)));
    if (averages_) RETURN_IF_ERROR(averages_->RunNext(micro->number, micro->fraction()));
    return FillFeeds(*program, *micro, Key(micro->number, MakePiece(micro->skipped, micro->count)));
  };
  absl::Status status = micro != nullptr ? prepare() : absl::OkStatus();
  const bool runs = micro != nullptr && status.ok();
  share_->BeginRound(runs ? std::span<const Region* const>(program->gradients) : std::span<const Region* const>());
  if (runs) {
    status = programs_.Run(*program->compiled);
    AddIteration(program, status);
  } else if (exchange_ != nullptr && exchange_->IsBehind()) {
    return RunEmptyShardedStep(kind, global_batch, std::move(status));
  }
  status.Update(share_->EndRound(runs && status.ok(), LostRanks() ? status : absl::OkStatus()));
  return status;
}

// Programs of other ranks wait for sums of gradients while they exchange values: an idle rank takes part in both.
absl::Status SessionImpl::RunEmptyShardedStep(ProgramKind kind, const GlobalBatch& global_batch, absl::Status status) {
  share_->SendZeros();
  const absl::Status ran = RunIdleRound(kind, global_batch);
  status.Update(ran);
  status.Update(share_->EndRound(false, LostRanks() ? ran : absl::OkStatus()));
  return status;
}

absl::Status SessionImpl::BeginTree(int64_t micros) {
  RETURN_IF_ERROR(state_.EnsureGradients());
  const int rank = ranks_ != nullptr ? ranks_->rank() : FindLargestTree(micros, options_.plan_ranks);
  if (!tree_) tree_.emplace(&backend_, dtype_, state_.PendingOnHost());
  return tree_->Begin(micros, rank, ranks_ != nullptr ? ranks_->size() : options_.plan_ranks);
}

// Adds the micro-batches of this rank's share, of which none is divided.
absl::Status SessionImpl::AccumulateIntoTree(const GlobalBatch& global_batch, int64_t samples) {
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
  const absl::Status ran = AccumulateIntoTree(global_batch, samples);
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
