#include "optim/parallel/pipeline/stage_graphs.h"

#include <algorithm>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/passes/dce.h"
#include "optim/step/program/optimize.h"

namespace onnxtrain {
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

// The nodes that other outputs than gradients depend on.
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
