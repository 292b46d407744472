// Sessions of ranks that divide the state, and with it weights, among themselves.
#include <algorithm>
#include <utility>
#include <vector>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/passes/collectives.h"
#include "frontend/passes/pass.h"
#include "optim/parallel/shard.h"
#include "optim/step/session_impl.h"

namespace onnxtrain {
namespace {

constexpr char kEvaluation[] = "end of an evaluation";

}  // namespace

absl::Status SessionImpl::CheckDividesGradients(ShardLevel level) const {
  if (!on_host()) return Invalid("`shard` ", ShardName(level), ": divides gradients on a CPU only");
  if (options_.deterministic) return Invalid("`shard` ", ShardName(level), ": `deterministic` sums whole gradients");
  return absl::OkStatus();
}

absl::Status SessionImpl::DivideState(ShardLevel level, const Shard& shard, size_t bucket_bytes) {
  if (level == ShardLevel::kNone) return absl::OkStatus();
  RETURN_IF_ERROR(CheckDivides(options_.optimizer));
  if (level == ShardLevel::kOptimizer) return state_.DivideMoments(options_.optimizer, shard, state_.WholeUnits());
  RETURN_IF_ERROR(CheckDividesGradients(level));
  DropMicroPrograms();
  const DividedWeights weights =
      level == ShardLevel::kFull ? ListDividedWeights(state_, shard.size, bucket_bytes) : DividedWeights();
  pieces_ = CutPieces(state_, prepared_.model.graph, dtype_, bucket_bytes, weights, shard.size);
  RETURN_IF_ERROR(state_.DivideMoments(options_.optimizer, shard, pieces_->units()));
  RETURN_IF_ERROR(state_.DivideGradients());
  if (weights.empty()) return absl::OkStatus();
  DropPrograms();
  batch_verified_ = true;  // by Init: no program can read whole weights again
  return state_.DivideWeights(weights);
}

void SessionImpl::DropPrograms() {
  programs_.Clear();
  ready_.clear();
  apply_.reset();
  swap_.reset();
  most_ = {};
}

// Has the program gather the weights that are divided. As many bytes are kept as the largest one has: a weight that the
// end of the forward pass reads, and then the begin of the backward pass, is gathered once.
absl::StatusOr<Graph> SessionImpl::GatherDivided(Graph graph) const {
  if (!state_.divides_weights()) return graph;
  GatherWeightsOptions options{.group = {.size = CountRanks()}, .weights = {}};
  for (const auto& [name, rows] : state_.divided_weights()) {
    const std::string columns = ColumnsName(name);
    options.weights[name] = {columns, state_.bindings().at(columns).type};
    options.keep = std::max(options.keep, state_.whole_type(name).bytes());
  }
  const Pass passes[] = {
      {"gather_weights", [&](const Graph& g) { return onnxtrain::GatherWeights(g, options); }},
      {"prefetch_gathers", [&](const Graph& g) { return PrefetchGathers(g, options.keep); }},
  };
  return RunPasses(std::move(graph), passes);
}

absl::Status SessionImpl::CheckWholeWeights() const {
  return state_.divides_weights() ? Invalid("`shard` full: no rank has whole weights") : absl::OkStatus();
}

absl::Status SessionImpl::GatherState() {
  if (!divides_moments()) return absl::OkStatus();
  RETURN_IF_ERROR(GatherMoments(options_.optimizer, *ranks_, &state_));
  return GatherWeights();
}

absl::Status SessionImpl::GatherWeights() {
  return state_.divides_weights() ? GatherDividedWeights(*ranks_, &state_) : absl::OkStatus();
}

absl::StatusOr<std::vector<StateTensor>> SessionImpl::StateParts() {
  CHECK(divides_moments()) << "the state is not divided";
  RETURN_IF_ERROR(backend_.Synchronize());
  return state_.Parts();
}

// Each rank evaluates its share of the batch; the last one counts the targets.
absl::StatusOr<Evaluation> SessionImpl::EvaluateShare(const GlobalBatch& global_batch) {
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, options_.fixed_batch));
  const SampleRange share =
      ShareOfRank(samples, std::max<int64_t>(1, options_.fixed_batch), ranks_->rank(), ranks_->size());
  CutMicros(global_batch);
  exchange_->Begin(CountRounds(samples));
  ClipToShare(share, &micros_);
  auto evaluated = EvaluateMicros(ProgramKind::kEval, global_batch, samples);
  absl::Status status = evaluated.status();
  status.Update(RunIdle(ProgramKind::kEval, global_batch));
  if (LostRanks()) return status;
  RETURN_IF_ERROR(ranks_->Agree(kEvaluation, status));
  if (ranks_->rank() + 1 == ranks_->size()) return evaluated;
  evaluated->weights.assign(evaluated->weights.size(), 0);
  evaluated->targets = 0;
  return evaluated;
}

}  // namespace onnxtrain
