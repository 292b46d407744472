#include "optim/parallel/reducers.h"

#include <algorithm>
#include <span>
#include <utility>

#include "backends/collective_call.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/ops/collective.h"
#include "frontend/ops/row.h"
#include "frontend/passes/collectives.h"
#include "frontend/passes/pass.h"
#include "optim/parallel/traffic.h"
#include "optim/record/telemetry/trace.h"

namespace onnxtrain {

absl::StatusOr<std::unique_ptr<GraphExchange>> GraphExchange::Create(Collectives& ranks, int64_t number) {
  ASSIGN_OR_RETURN(auto group, NewGroupOfAll(ranks, StrCat("graph", number)));
  return std::unique_ptr<GraphExchange>(new GraphExchange(std::move(group)));
}

void GraphExchange::AddIteration(const absl::Status& ran) {
  --missing_;
  if (!ran.ok()) Break(ran);
}

void GraphExchange::Break(const absl::Status& why) {
  broken_ = true;
  ranks_->Close(why);
}

namespace {

// Returns the bytes of a program input; null if the value is computed.
const std::byte* FindInput(const Graph& program, ValueId value, const Bindings& state) {
  if (!program.IsInput(value)) return nullptr;
  const auto found = state.find(program.inputs()[program.value(value).index].name);
  if (found == state.end()) return nullptr;
  return HostMemory(found->second);
}

}  // namespace

absl::Status GraphExchange::RunIdle(const Graph& program, const Bindings& state) {
  const auto run = [&]() -> absl::Status {
    for (const Node& node : program.nodes()) {
      if (!FindOp(node.op)->collective || node.op == kAwaitGather) continue;
      const Type &in = program.type(node.inputs[0]), &out = program.type(node.outputs[0]);
      const CollectiveCall call(node, in, out);
      const std::byte* own = FindInput(program, node.inputs[0], state);
      if (own == nullptr) {
        zeros_.assign(in.bytes(), std::byte{0});
        own = zeros_.data();
      }
      result_.resize(out.bytes());
      workspace_.resize(call.workspace());
      RETURN_IF_ERROR(Annotate(call.Run(ranks_.get(), own, result_.data(), workspace_.data()), NodeTag(node)));
    }
    return absl::OkStatus();
  };
  const absl::Status ran = run();
  AddIteration(ran);
  return ran;
}

absl::Status RankReducer::Prepare(bool gathers) {
  TrainingState& state = session_.state();
  if (ranks_ != nullptr && (session_.options().sync_batch_norm || gathers)) {
    RETURN_IF_ERROR(CreateGraphCollectives());
    session_.DropMicroPrograms();
  }
  if (state.pending_statistics() == nullptr) return absl::OkStatus();
  if (!state.statistics_start_at_zero()) {
    RETURN_IF_ERROR(state.StartStatisticsAtZero());
    session_.DropMicroPrograms();
  }
  averages_.emplace(&session_.backend(), state.dtype(), state.running_statistics(), state.pending_statistics(),
                    state.running_averages());
  return absl::OkStatus();
}

absl::Status RankReducer::Join() {
  if (exchange_ != nullptr) ranks_->BeginTogether();
  return absl::OkStatus();
}

absl::Status RankReducer::AddCollectives(PreparedModel* prepared) const {
  if (!session_.options().sync_batch_norm || size_ == 1) return absl::OkStatus();
  std::vector<ValueId> values;
  const Pass sync = {"sync_batch_norm", [&](const Graph& g) { return SyncBatchNorm(g, {.size = size_}, &values); }};
  ASSIGN_OR_RETURN(prepared->model.graph, RunPasses(prepared->model.graph, {&sync, 1}));
  for (LossTerm& term : prepared->loss.terms) {
    if (term.value != kNoValue) term.value = values[term.value];
  }
  return absl::OkStatus();
}

absl::Status RankReducer::PlanUpdate(int64_t samples) {
  return session_.PlanMicros(LargestShare(samples, unit(), size_));
}

absl::Status RankReducer::Begin() {
  return ranks_ != nullptr && ranks_->begins_together() ? ranks_->AgreeToBegin(absl::OkStatus()) : absl::OkStatus();
}

void RankReducer::BeginMicros(int64_t pending, std::vector<MicroBatch>* micros) {
  if (averages_) averages_->Begin(pending + std::ssize(*micros));
}

// Creates a new group, in which programs that are compiled later exchange values.
absl::Status RankReducer::CreateGraphCollectives() {
  ASSIGN_OR_RETURN(exchange_, GraphExchange::Create(ranks_->ranks(), session_.oom_retries()));
  session_.programs().BindGroup(kWorldGroup, exchange_->ranks());
  return absl::OkStatus();
}

// Ranks that did not answer within programs are not waited for again.
absl::Status RankReducer::Exchange(const absl::Status& ran) {
  if (LostRanks()) return ranks_->GiveUp(ran);
  const Span span(session_.trace(), Trace::kTraining, "exchange");
  return ranks_->Exchange(ran, sums_);
}

absl::Status RankReducer::FinishAverages() {
  return averages_ ? averages_->FinishTogether(ranks_->ranks(), "all-reduce of statistics") : absl::OkStatus();
}

// Returns the largest number of micro-batches that a rank runs; the session's micro-batches cover all `samples`.
int64_t RankReducer::CountRounds(int64_t samples) const {
  int64_t rounds = 0;
  for (int r = 0; r < size_; ++r)
    rounds = std::max(rounds, CountMicros(ShareOfRank(samples, unit(), r, size_), session_.micros()));
  return rounds;
}

// Takes part in the remaining rounds, in which the programs of other ranks exchange values.
absl::Status RankReducer::RunIdle(ProgramKind kind, const GlobalBatch& global_batch) {
  while (exchange_->IsBehind()) RETURN_IF_ERROR(RunIdleRound(kind, global_batch));
  return absl::OkStatus();
}

// Takes part in one round without samples. `kind` is kEval or any micro program, all of which exchange the same values.
absl::Status RankReducer::RunIdleRound(ProgramKind kind, const GlobalBatch& global_batch) {
  const auto& ready = session_.ready_programs();
  const auto found = std::ranges::find_if(ready, [&](const auto& r) { return IsMicro(r->kind) == IsMicro(kind); });
  absl::StatusOr<CompiledBatchProgram*> got = found != ready.end() ? found->get() : nullptr;
  if (found == ready.end()) got = session_.Get(kind, unit(), session_.FindExtents(global_batch));
  if (!got.ok()) exchange_->Break(got.status());
  ASSIGN_OR_RETURN(CompiledBatchProgram * program, got);
  const absl::Status ran = exchange_->RunIdle(program->compiled->program->graph(), session_.state().bindings());
  CountExchange(program);
  return ran;
}

// Ends a round of a program with collective operators.
void RankReducer::EndProgram(CompiledBatchProgram* program, const absl::Status& ran) {
  const bool exchanges = IsMicro(program->kind) || session_.state().divides_weights();
  if (exchange_ == nullptr || !exchanges) return;
  exchange_->AddIteration(ran);
  CountExchange(program);
}

// Counts what a program of an update sends.
void RankReducer::CountExchange(CompiledBatchProgram* program) {
  if (!IsMicro(program->kind)) return;
  if (program->sent_bytes < 0) program->sent_bytes = CountTraffic(program->compiled->program->graph()).bytes;
  ranks_->AddTransfers(program->sent_bytes, 0);
}

// If programs gather weights, each rank evaluates its share of the batch, and the last rank counts the targets.
absl::StatusOr<Evaluation> RankReducer::Evaluate(const GlobalBatch& global_batch) {
  if (!session_.holds_partial_weights()) return GradientReducer::Evaluate(global_batch);
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, session_.fixed_batch()));
  std::vector<MicroBatch>& micros = session_.CutMicros(global_batch);
  exchange_->Begin(CountRounds(samples));
  ClipToShare(OwnShare(samples), &micros);
  auto evaluated = session_.EvaluateMicros(ProgramKind::kEval, global_batch, samples);
  absl::Status status = evaluated.status();
  status.Update(RunIdle(ProgramKind::kEval, global_batch));
  if (LostRanks()) return status;
  RETURN_IF_ERROR(ranks_->Agree("end of an evaluation", status));
  if (ranks_->rank() + 1 == size_) return evaluated;
  evaluated->weights.assign(evaluated->weights.size(), 0);
  evaluated->targets = 0;
  return evaluated;
}

absl::Status AllReducer::Join() {
  RETURN_IF_ERROR(RankReducer::Join());
  TrainingState& state = session_.state();
  if (ranks_ == nullptr || state.gradients() == nullptr) return absl::OkStatus();
  return ranks_->SumGradient(&session_.backend(), state.dtype(), state.gradients(),
                             ListSlices(state, session_.graph()));
}

void AllReducer::Watch(CompiledBatchProgram* program) {
  if (ranks_ != nullptr) ranks_->Watch(program->compiled->program.get());
}

// All ranks return the same status, even if only one of them fails.
absl::Status AllReducer::Accumulate(const GlobalBatch& global_batch, int64_t samples) {
  ranks_->BeginUpdate();
  share_ = OwnShare(samples);
  const absl::Status ran = RunShare(global_batch, *share_);
  share_.reset();
  return ran;
}

absl::Status AllReducer::Finish(const absl::Status& ran) {
  RETURN_IF_ERROR(Exchange(ran));
  RETURN_IF_ERROR(session_.state().device_scalars().WriteSums(sums_));
  return FinishAverages();
}

// Stores the losses and the correct predictions of the share in `sums_`.
absl::Status AllReducer::RunShare(const GlobalBatch& global_batch, const SampleRange& share) {
  sums_.assign(session_.ExchangedSums(), 0);
  if (exchange_ != nullptr) {
    session_.CutMicros(global_batch);
    exchange_->Begin(CountRounds(global_batch.samples()));
  }
  absl::Status ran = session_.RunMicros(global_batch, ProgramKind::kMicroFirst, nullptr);
  if (exchange_ != nullptr) ran.Update(RunIdle(ProgramKind::kMicroFirst, global_batch));
  RETURN_IF_ERROR(ran);
  if (share.begin == share.end) RETURN_IF_ERROR(session_.state().ClearPending());
  RETURN_IF_ERROR(session_.backend().Synchronize());
  return session_.state().device_scalars().ReadSums(sums_);
}

void AllReducer::BeginMicros(int64_t pending, std::vector<MicroBatch>* micros) {
  RankReducer::BeginMicros(pending, micros);
  if (share_) ClipToShare(*share_, micros);
}

absl::Status AllReducer::BeginMicro(const MicroBatch& micro, bool last) {
  if (!share_) return absl::OkStatus();
  ranks_->set_runs_last(last);
  return averages_ ? averages_->RunNext(micro.number, micro.fraction()) : absl::OkStatus();
}

absl::Status ShardedReducer::Join() {
  if (ranks_ == nullptr) return absl::OkStatus();
  ranks_->BeginTogether();
  share_ = std::make_unique<GradientShare>(&ranks_->ranks(), &pieces_, session_.state(), ranks_->options().send_bf16);
  return absl::OkStatus();
}

void ShardedReducer::Watch(CompiledBatchProgram* ready) {
  if (share_ == nullptr) return;
  for (const std::string& name : pieces_.outputs) ready->gradients.push_back(&ready->compiled->outputs.at(name));
  Program& program = *ready->compiled->program;
  program.NotifyWhenComplete(FindOutputsUpTo(pieces_, program.graph()), share_.get());
}

absl::Status ShardedReducer::Accumulate(const GlobalBatch& global_batch, int64_t samples) {
  ranks_->BeginUpdate();
  share_->Begin();
  const absl::Status ran = RunRounds(global_batch, samples);
  ranks_->AddScattered(*share_, pieces_);
  return ran;
}

absl::Status ShardedReducer::Finish(const absl::Status& ran) {
  RETURN_IF_ERROR(Exchange(ran));
  RETURN_IF_ERROR(session_.state().device_scalars().WriteSums(sums_));
  ASSIGN_OR_RETURN(const double square, share_->SumSquares());
  RETURN_IF_ERROR(session_.state().device_scalars().squared_norm.Write(square));
  return FinishAverages();
}

// Every rank takes part in as many rounds as the rank with the most micro-batches, even after a local error.
absl::Status ShardedReducer::RunRounds(const GlobalBatch& global_batch, int64_t samples) {
  sums_.assign(session_.ExchangedSums(), 0);
  absl::Status status = session_.CountTargets(global_batch, samples);
  std::vector<MicroBatch>& micros = session_.CutMicros(global_batch);
  BeginMicros(0, &micros);
  const int64_t rounds = CountRounds(samples);
  if (exchange_ != nullptr) exchange_->Begin(rounds);
  ClipToShare(OwnShare(samples), &micros);
  for (int64_t i = 0; i < rounds && !LostRanks(); ++i) {
    const MicroBatch* const micro = status.ok() && i < std::ssize(micros) ? &micros[i] : nullptr;
    status.Update(RunRound(MicroKind(ProgramKind::kMicroFirst, i), global_batch, micro));
  }
  RETURN_IF_ERROR(status);
  if (micros.empty()) RETURN_IF_ERROR(session_.state().ClearPending());
  return session_.state().device_scalars().ReadSums(sums_);
}

// Runs one round; `micro` is null if this rank has no micro-batch left.
absl::Status ShardedReducer::RunRound(ProgramKind kind, const GlobalBatch& global_batch, const MicroBatch* micro) {
  CompiledBatchProgram* program = nullptr;
  const auto prepare = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckCancelled());
    ASSIGN_OR_RETURN(program, session_.Get(kind, micro->count, session_.FindExtents(*micro->part)));
    if (averages_) RETURN_IF_ERROR(averages_->RunNext(micro->number, micro->fraction()));
    return session_.FillFeeds(*program, *micro, session_.PartKey(*micro));
  };
  absl::Status status = micro != nullptr ? prepare() : absl::OkStatus();
  const bool runs = micro != nullptr && status.ok();
  share_->BeginRound(runs ? std::span<const Region* const>(program->gradients) : std::span<const Region* const>());
  if (runs) {
    status = session_.programs().Run(*program->compiled);
    EndProgram(program, status);
  } else if (exchange_ != nullptr && exchange_->IsBehind()) {
    return RunEmptyRound(kind, global_batch, std::move(status));
  }
  status.Update(share_->EndRound(runs && status.ok(), LostRanks() ? status : absl::OkStatus()));
  return status;
}

// Programs of other ranks wait for sums of gradients while they exchange values: an idle rank takes part in both.
absl::Status ShardedReducer::RunEmptyRound(ProgramKind kind, const GlobalBatch& global_batch, absl::Status status) {
  share_->SendZeros();
  const absl::Status ran = RunIdleRound(kind, global_batch);
  status.Update(ran);
  status.Update(share_->EndRound(false, LostRanks() ? ran : absl::OkStatus()));
  return status;
}

absl::Status TreeReducer::BeginTree(int64_t micros) {
  TrainingState& state = session_.state();
  RETURN_IF_ERROR(state.EnsureGradients());
  if (!tree_) tree_.emplace(&session_.backend(), state.dtype(), state.PendingOnHost());
  return tree_->Begin(micros, ranks_ != nullptr ? ranks_->rank() : FindLargestTree(micros, size_), size_);
}

absl::Status TreeReducer::PlanUpdate(int64_t samples) {
  const int64_t micro = session_.micro_batch(), rest = samples % micro;
  RETURN_IF_ERROR(BeginTree((samples + micro - 1) / micro));
  for (const int64_t count : {std::min(samples, micro), rest}) {
    if (count > 0)
      RETURN_IF_ERROR(session_.Get(ProgramKind::kMicroFirst, count, GreatestExtents(session_.options())).status());
  }
  return session_.EnsureApply();
}

// Adds the whole micro-batches of this rank's share.
absl::Status TreeReducer::Accumulate(const GlobalBatch& global_batch, int64_t samples) {
  RETURN_IF_ERROR(session_.CountTargets(global_batch, samples));
  std::vector<MicroBatch>& micros = session_.CutMicros(global_batch);
  RETURN_IF_ERROR(BeginTree(std::ssize(micros)));
  BeginMicros(0, &micros);
  const SampleRange share = tree_->share();
  for (int64_t i = share.begin; i < share.end; ++i) {
    const MicroBatch& m = micros[i];
    RETURN_IF_ERROR(session_.RunMicro(ProgramKind::kMicroFirst, m, session_.Key(m.number)).status());
    if (averages_) RETURN_IF_ERROR(averages_->Weigh(m.number));
    tree_->Add();
  }
  return absl::OkStatus();
}

absl::Status TreeReducer::Finish(const absl::Status& ran) {
  if (ranks_ == nullptr) {
    RETURN_IF_ERROR(ran);
    tree_->Finish();
    return FinishLocal();
  }
  const Span span(session_.trace(), Trace::kTraining, "exchange");
  sums_.assign(session_.ExchangedSums(), 0);
  RETURN_IF_ERROR(ranks_->Exchange(ran, sums_));
  RETURN_IF_ERROR(ranks_->SumTree(&*tree_));
  return FinishLocal();
}

}  // namespace onnxtrain
