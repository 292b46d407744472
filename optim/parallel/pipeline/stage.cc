#include "optim/parallel/pipeline/stage.h"

#include <algorithm>
#include <set>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/dce.h"
#include "optim/parallel/pipeline/stage_graphs.h"

namespace onnxtrain {

std::string SentName(const Boundary& boundary) { return "$sent:" + boundary.name; }
std::string SeedName(const Boundary& boundary) { return StrCat(kTransferPrefix, "gradient:", boundary.name); }

LossGraph ReduceToLoss(const PreparedModel& whole) {
  Graph graph = whole.model.graph;
  graph.ClearOutputs();
  for (size_t t = 0; t < whole.loss.terms.size(); ++t) graph.AddOutput(StrCat("$value:", t), whole.loss.terms[t].value);
  for (const StateUpdate& update : whole.model.state_updates)
    graph.AddOutput(update.output, whole.model.graph.FindOutput(update.output)->value);
  LossGraph reduced{.graph = Dce(graph)};
  for (size_t t = 0; t < whole.loss.terms.size(); ++t) reduced.results.push_back(reduced.graph.outputs()[t].value);
  return reduced;
}

namespace {

// Cuts one stage out of a graph.
class Cutter {
 public:
  Cutter(const LossGraph& whole, const std::vector<int>& stages, const Placement& placement, int stage)
      : graph_(whole.graph), results_(whole.results), stages_(stages), placement_(placement), stage_(stage) {
    FindLastReaders();
    FindTrained();
  }

  ExtractedGraph Cut(Stage* stage) {
    std::vector<CutValue> cuts;
    for (ValueId v = 0; v < std::ssize(last_); ++v) {
      if (!Crosses(v)) continue;
      const Boundary boundary{StrCat(kTransferPrefix, v), graph_.type(v), trained_[v] && IsFloat(graph_.type(v).dtype)};
      if (Producer(v) < stage_ && last_[v] >= stage_) {
        cuts.push_back({v, InputKind::kFeed, boundary.name});
        stage->in.push_back(boundary);
      }
      if (Producer(v) <= stage_ && last_[v] > stage_) {
        sent_.push_back(v);
        stage->out.push_back(boundary);
      }
    }
    ExtractedGraph part = Extract(graph_, Kept(), cuts, Wanted());
    for (size_t i = 0; i < sent_.size(); ++i) part.graph.AddOutput(SentName(stage->out[i]), part.values[sent_[i]]);
    return part;
  }

 private:
  bool last() const { return stage_ + 1 == placement_.stages; }
  int Producer(ValueId v) const { return graph_.IsInput(v) ? kAnyStage : stages_[graph_.value(v).node]; }
  bool Crosses(ValueId v) const { return Producer(v) != kAnyStage && last_[v] > Producer(v); }

  void FindLastReaders() {
    last_.assign(graph_.values().size(), kAnyStage);
    for (size_t n = 0; n < stages_.size(); ++n) {
      for (const ValueId v : graph_.nodes()[n].inputs) {
        if (v != kNoValue) last_[v] = std::max(last_[v], stages_[n]);
      }
    }
    for (const ValueId v : results_) last_[v] = placement_.stages - 1;
  }

  void FindTrained() {
    trained_.assign(graph_.values().size(), false);
    for (const GraphInput& input : graph_.inputs()) trained_[input.value] = input.kind == InputKind::kParameter;
    for (const Node& node : graph_.nodes()) {
      const bool any = std::ranges::any_of(node.inputs, [&](ValueId v) { return v != kNoValue && trained_[v]; });
      for (const ValueId v : node.outputs) trained_[v] = any;
    }
  }

  // The nodes of the stage, and the cloned ones that they or the loss read.
  std::vector<bool> Kept() const {
    std::vector<bool> keep(stages_.size());
    const auto keep_clone = [&](ValueId v) {
      if (v != kNoValue && !graph_.IsInput(v) && Producer(v) == kAnyStage) keep[graph_.value(v).node] = true;
    };
    if (last()) std::ranges::for_each(results_, keep_clone);
    for (size_t n = keep.size(); n-- > 0;) {
      keep[n] = keep[n] || stages_[n] == stage_;
      if (keep[n]) std::ranges::for_each(graph_.nodes()[n].inputs, keep_clone);
    }
    return keep;
  }

  std::vector<ValueId> Wanted() const {
    std::vector<ValueId> wanted;
    for (const GraphInput& input : graph_.inputs()) {
      const bool kept = input.kind == InputKind::kParameter || input.kind == InputKind::kState;
      if (kept && placement_.Owner(input.name) == stage_) wanted.push_back(input.value);
    }
    for (const ValueId v : results_) {
      if (last() && graph_.IsInput(v)) wanted.push_back(v);
    }
    return wanted;
  }

  const Graph& graph_;
  const std::vector<ValueId>& results_;
  const std::vector<int>& stages_;
  const Placement& placement_;
  const int stage_;
  std::vector<int> last_;  // by value: the last stage that reads it
  std::vector<bool> trained_;
  std::vector<ValueId> sent_;
};

// What belongs to the inputs of the stage's graph.
void KeepWeights(const PreparedModel& whole, const Placement& placement, Stage* stage) {
  ImportedModel& model = stage->prepared.model;
  std::set<std::string> inputs;
  for (const GraphInput& input : model.graph.inputs()) inputs.insert(input.name);
  for (const ImportedWeight& w : whole.model.weights) {
    if (inputs.contains(w.name)) model.weights.push_back(w);
  }
  for (const WeightDecision& w : whole.weights) {
    if (inputs.contains(w.name) && placement.Owner(w.name) == stage->index) stage->prepared.weights.push_back(w);
  }
  for (const StateUpdate& update : whole.model.state_updates) {
    if (inputs.contains(update.state)) model.state_updates.push_back(update);
  }
  model.batch = whole.model.batch;
  model.exported_batch = whole.model.exported_batch;
  if (inputs.contains(whole.model.random_key)) model.random_key = whole.model.random_key;
}

}  // namespace

absl::StatusOr<Stage> CutStage(const PreparedModel& whole, const Placement& placement, int index) {
  const LossGraph reduced = ReduceToLoss(whole);
  ASSIGN_OR_RETURN(const std::vector<int> stages, AssignStages(reduced.graph, placement));
  Stage stage{.index = index, .count = placement.stages};
  ExtractedGraph part = Cutter(reduced, stages, placement, index).Cut(&stage);
  stage.prepared.loss = whole.loss;
  stage.prepared.model.graph = std::move(part.graph);
  KeepWeights(whole, placement, &stage);
  for (const StateUpdate& update : stage.prepared.model.state_updates)
    stage.prepared.model.graph.AddOutput(update.output, part.values[reduced.graph.FindOutput(update.output)->value]);
  for (size_t t = 0; t < reduced.results.size(); ++t)
    stage.prepared.loss.terms[t].value = stage.last() ? part.values[reduced.results[t]] : kNoValue;
  return stage;
}

}  // namespace onnxtrain
