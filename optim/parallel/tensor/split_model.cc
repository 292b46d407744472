#include "optim/parallel/tensor/split_model.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/passes/pass.h"
#include "optim/parallel/pipeline/stage.h"
#include "optim/parallel/tensor/split_graph.h"

namespace onnxtrain {
namespace {

WeightSplits ListSplits(const Graph& graph, const SplitPlan& plan) {
  WeightSplits splits;
  for (const GraphInput& input : graph.inputs()) {
    const auto found = plan.values.find(input.value);
    if (found != plan.values.end()) splits.emplace(input.name, found->second);
  }
  return splits;
}

absl::Status CheckFollows(const Graph& graph, const WeightSplits& splits, const WeightSplits& decided) {
  for (const GraphInput& input : graph.inputs()) {
    const auto now = splits.find(input.name), then = decided.find(input.name);
    if ((now == splits.end()) != (then == decided.end()) || (now != splits.end() && now->second != then->second))
      return absl::UnimplementedError(
          StrCat("`tensor`: weight '", input.name, "' is divided otherwise for another batch or in evaluations"));
  }
  return absl::OkStatus();
}

// What belongs to the inputs of the graph.
void KeepWeights(const PreparedModel& whole, const WeightSplits& splits, int rank, int ranks, PreparedModel* part) {
  std::set<std::string> inputs;
  for (const GraphInput& input : part->model.graph.inputs()) inputs.insert(input.name);
  for (ImportedWeight w : whole.model.weights) {
    if (!inputs.contains(w.name)) continue;
    const auto split = splits.find(w.name);
    const bool divided = split != splits.end() && !w.value.bytes().empty();
    if (divided) w.value = TakePart(w.value, split->second, rank, ranks);
    part->model.weights.push_back(std::move(w));
  }
  for (WeightDecision w : whole.weights) {
    if (!inputs.contains(w.name)) continue;
    const auto split = splits.find(w.name);
    if (split != splits.end()) w.type.shape = PartShape(std::move(w.type.shape), split->second, ranks);
    part->weights.push_back(std::move(w));
  }
  part->model.batch = whole.model.batch;
  part->model.exported_batch = whole.model.exported_batch;
  part->model.state_updates = whole.model.state_updates;
  part->model.notes = whole.model.notes;
  if (inputs.contains(whole.model.random_key)) part->model.random_key = whole.model.random_key;
}

}  // namespace

absl::StatusOr<ModelSplit> SplitModel(const PreparedModel& whole, const WeightSplits* decided, int rank, int ranks) {
  const LossGraph reduced = ReduceToLoss(whole);
  std::vector<ValueId> plain;
  const Pass decompose = {"decompose_dropout", [&](const Graph& g) { return DecomposeDropout(g, &plain); }};
  ASSIGN_OR_RETURN(const Graph graph, RunPasses(reduced.graph, {&decompose, 1}));
  std::vector<ValueId> results;
  for (const ValueId v : reduced.results) results.push_back(plain[v]);
  const auto splits_table = [&](const Node& gather) {
    if (decided == nullptr) return IsLargeTable(graph, gather);
    return decided->contains(graph.inputs()[graph.value(gather.inputs[0]).index].name);
  };
  const SplitPlan plan = PlanSplit(graph, results, ranks, splits_table);
  ModelSplit split{.weights = ListSplits(graph, plan)};
  if (split.weights.empty())
    return Invalid("`tensor` ", ranks, ": no weight of the model has parts that ", ranks, " ranks could compute with");
  if (decided != nullptr) RETURN_IF_ERROR(CheckFollows(graph, split.weights, *decided));
  std::vector<ValueId> parts;
  Graph part;
  const auto build = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(part, BuildPart(graph, plan, rank, &parts));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunRewrite("build_part", build, {&part}));
  split.prepared.loss = whole.loss;
  for (size_t t = 0; t < results.size(); ++t) split.prepared.loss.terms[t].value = parts[results[t]];
  const std::vector<GraphOutput> outputs = part.outputs();
  part.ClearOutputs();
  for (const StateUpdate& update : whole.model.state_updates)
    part.AddOutput(update.output, std::ranges::find(outputs, update.output, &GraphOutput::name)->value);
  split.prepared.model.graph = std::move(part);
  KeepWeights(whole, split.weights, rank, ranks, &split.prepared);
  return split;
}

}  // namespace onnxtrain
