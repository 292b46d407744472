#include "optim/parallel/pipeline/stage.h"

#include <algorithm>
#include <set>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/eliminate.h"
#include "optim/step/program/optimize.h"

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

// Keeps only the weights and decisions that belong to inputs of the stage's graph.
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

namespace {

std::vector<bool> FindRead(const Graph& whole, const std::vector<bool>& keep, const std::vector<ValueId>& wanted) {
  std::vector<bool> read(whole.values().size());
  for (const ValueId v : wanted) read[v] = true;
  for (size_t n = 0; n < keep.size(); ++n) {
    if (!keep[n]) continue;
    for (const ValueId v : whole.nodes()[n].inputs) {
      if (v != kNoValue) read[v] = true;
    }
  }
  return read;
}

void CopyNode(const Graph& whole, const Node& node, ExtractedGraph* part) {
  ValueIds inputs;
  for (const ValueId v : node.inputs) {
    inputs.push_back(v == kNoValue ? kNoValue : part->values[v]);
    CHECK(v == kNoValue || inputs.back() != kNoValue) << "a value that is not cut: " << NodeTag(node);
  }
  const Node& copy = part->graph.AddCopy(whole, node, std::move(inputs));
  for (size_t i = 0; i < copy.outputs.size(); ++i) part->values[node.outputs[i]] = copy.outputs[i];
}

}  // namespace

ExtractedGraph Extract(const Graph& whole, const std::vector<bool>& keep, const std::vector<CutValue>& cuts,
                       const std::vector<ValueId>& wanted) {
  ExtractedGraph part{.values = std::vector<ValueId>(whole.values().size(), kNoValue)};
  const std::vector<bool> read = FindRead(whole, keep, wanted);
  const auto add = [&](ValueId v, InputKind kind, const std::string& name) {
    part.values[v] = part.graph.AddInput(kind, name, whole.type(v));
    part.graph.SetValueName(part.values[v], whole.value(v).name);
  };
  const auto add_all = [&](bool feeds) {
    for (const GraphInput& input : whole.inputs()) {
      if (read[input.value] && (input.kind == InputKind::kFeed) == feeds) add(input.value, input.kind, input.name);
    }
    for (const CutValue& cut : cuts) {
      if ((cut.kind == InputKind::kFeed) == feeds) add(cut.value, cut.kind, cut.name);
    }
  };
  add_all(true);
  add_all(false);
  for (size_t n = 0; n < keep.size(); ++n) {
    if (keep[n]) CopyNode(whole, whole.nodes()[n], &part);
  }
  return part;
}

namespace {

bool IsGradient(const GraphOutput& output) { return output.name.starts_with(GradName("")); }

// Returns the nodes on which outputs other than gradients depend.
std::vector<bool> FindForward(const Graph& joint) {
  std::vector<bool> forward(joint.nodes().size());
  const auto mark = [&](ValueId v) {
    if (v != kNoValue && !joint.IsInput(v)) forward[joint.value(v).node] = true;
  };
  for (const GraphOutput& output : joint.outputs()) {
    if (!IsGradient(output)) mark(output.value);
  }
  for (size_t n = forward.size(); n-- > 0;) {
    if (forward[n]) std::ranges::for_each(joint.nodes()[n].inputs, mark);
  }
  return forward;
}

// Nodes of weights and constants alone are cheaper to compute again than to keep. Statistics change in between.
std::vector<bool> FindRepeatable(const Graph& joint) {
  std::vector<bool> fixed(joint.values().size());
  for (const GraphInput& input : joint.inputs())
    fixed[input.value] = input.kind == InputKind::kParameter || input.kind == InputKind::kFrozen;
  std::vector<bool> repeatable;
  for (const Node& node : joint.nodes()) {
    repeatable.push_back(std::ranges::all_of(node.inputs, [&](ValueId v) { return v == kNoValue || fixed[v]; }));
    for (const ValueId v : node.outputs) fixed[v] = repeatable.back();
  }
  return repeatable;
}

// Cuts the graph of both passes in two.
class Splitter {
 public:
  explicit Splitter(const Graph& joint)
      : joint_(joint), forward_(FindForward(joint)), repeatable_(FindRepeatable(joint)) {}

  StageGraphs Split() {
    FindBackward();
    StageGraphs graphs;
    ExtractedGraph forward = Extract(joint_, forward_, {}, InputsOf(false));
    AddOutputs(forward, false);
    std::vector<CutValue> cuts;
    for (const ValueId v : FindSaved()) {
      cuts.push_back({v, InputKind::kState, StrCat("$saved:", v)});
      forward.graph.AddOutput(cuts.back().name, forward.values[v]);
      graphs.saved.emplace_back(cuts.back().name, joint_.type(v));
    }
    ExtractedGraph backward = Extract(joint_, backward_, cuts, InputsOf(true));
    AddOutputs(backward, true);
    graphs.forward = std::move(forward.graph);
    graphs.backward = std::move(backward.graph);
    return graphs;
  }

 private:
  void FindBackward() {
    for (const bool forward : forward_) backward_.push_back(!forward);
    for (size_t n = backward_.size(); n-- > 0;) {
      if (backward_[n]) std::ranges::for_each(joint_.nodes()[n].inputs, [&](ValueId v) { Repeat(v); });
    }
    for (const GraphOutput& output : joint_.outputs()) {
      if (IsGradient(output)) Repeat(output.value);
    }
  }

  void Repeat(ValueId v) {
    if (v == kNoValue || joint_.IsInput(v)) return;
    const int32_t node = joint_.value(v).node;
    if (backward_[node] || !repeatable_[node]) return;
    backward_[node] = true;
    for (const ValueId operand : joint_.nodes()[node].inputs) Repeat(operand);
  }

  std::vector<ValueId> FindSaved() const {
    std::vector<bool> saved(joint_.values().size());
    const auto mark = [&](ValueId v) {
      if (v != kNoValue && !joint_.IsInput(v) && !backward_[joint_.value(v).node]) saved[v] = true;
    };
    for (size_t n = 0; n < backward_.size(); ++n) {
      if (backward_[n]) std::ranges::for_each(joint_.nodes()[n].inputs, mark);
    }
    for (const GraphOutput& output : joint_.outputs()) {
      if (IsGradient(output)) mark(output.value);
    }
    std::vector<ValueId> values;
    for (ValueId v = 0; v < std::ssize(saved); ++v) {
      if (saved[v]) values.push_back(v);
    }
    return values;
  }

  // Inputs that outputs are, or go into.
  std::vector<ValueId> InputsOf(bool gradients) const {
    std::vector<ValueId> inputs;
    for (const GraphOutput& output : joint_.outputs()) {
      if (IsGradient(output) != gradients) continue;
      if (joint_.IsInput(output.value)) inputs.push_back(output.value);
      if (output.into != kNoValue) inputs.push_back(output.into);
    }
    return inputs;
  }

  void AddOutputs(ExtractedGraph& part, bool gradients) const {
    for (const GraphOutput& output : joint_.outputs()) {
      if (IsGradient(output) != gradients) continue;
      part.graph.AddOutput(output.name, part.values[output.value],
                           output.into == kNoValue ? kNoValue : part.values[output.into]);
    }
  }

  const Graph& joint_;
  std::vector<bool> forward_, repeatable_, backward_;
};

// The forward passes of later micro-batches have changed it by then.
absl::Status CheckReadsNoUpdated(const StageGraphs& graphs) {
  for (const GraphOutput& output : graphs.forward.outputs()) {
    if (output.into == kNoValue) continue;
    const std::string& name = graphs.forward.inputs()[graphs.forward.value(output.into).index].name;
    if (graphs.backward.FindInput(name) != nullptr)
      return absl::UnimplementedError(
          StrCat("`pipeline`: the backward pass reads the running statistics '", name, "'"));
  }
  return absl::OkStatus();
}

void AddSent(const Stage& stage, Graph* graph) {
  for (const Boundary& boundary : stage.out)
    graph->AddOutput(SentName(boundary), stage.prepared.model.graph.FindOutput(SentName(boundary))->value);
}

absl::StatusOr<Graph> BuildJoint(const Stage& stage, const LossSpec& loss, int64_t batch,
                                 const StageMicroOptions& options) {
  MicroOptions micro{.first = options.first, .scaled = options.scaled, .loss = stage.last()};
  for (const Boundary& boundary : stage.in) {
    if (boundary.differentiable) micro.gradient_feeds.push_back(boundary.name);
  }
  const Graph& graph = stage.prepared.model.graph;
  for (const Boundary& boundary : stage.out) {
    if (boundary.differentiable)
      micro.seeds.push_back({graph.FindOutput(SentName(boundary))->value, SeedName(boundary)});
  }
  ASSIGN_OR_RETURN(Graph joint, BuildMicro(stage.prepared.model, stage.prepared.loss, loss, batch, micro));
  AddSent(stage, &joint);
  return OptimizeProgram(std::move(joint), DType::kFloat32);
}

}  // namespace

absl::StatusOr<StageGraphs> BuildStageMicro(const Stage& stage, const LossSpec& loss, int64_t batch,
                                            const StageMicroOptions& options) {
  ASSIGN_OR_RETURN(Graph joint, BuildJoint(stage, loss, batch, options));
  if (stage.last()) return StageGraphs{.forward = std::move(joint)};
  StageGraphs graphs = Splitter(joint).Split();
  RETURN_IF_ERROR(CheckReadsNoUpdated(graphs));
  return graphs;
}

absl::StatusOr<Graph> BuildStageEval(const Stage& stage, const LossSpec& loss, int64_t batch,
                                     const std::vector<Metric>& metrics) {
  if (stage.last()) return BuildEval(stage.prepared.model, stage.prepared.loss, loss, batch, metrics);
  Graph graph = stage.prepared.model.graph;
  graph.ClearOutputs();
  AddSent(stage, &graph);
  return graph;
}

}  // namespace onnxtrain
