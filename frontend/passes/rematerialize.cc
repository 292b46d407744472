#include "frontend/passes/rematerialize.h"

#include <algorithm>

#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

class Cloner {
 public:
  Cloner(const Graph& graph, int32_t boundary, const std::vector<bool>& again)
      : graph_(graph), boundary_(boundary), again_(again), first_(graph.values().size(), kNoValue), second_(first_) {
    MarkViews();
  }

  Rematerialized Run() {
    for (const GraphInput& input : graph_.inputs()) {
      Keep(input.value, out_.graph.AddInput(input.kind, input.name, graph_.type(input.value)), first_);
    }
    for (int32_t n = 0; n < std::ssize(graph_.nodes()); ++n) n < boundary_ ? Copy(n, first_) : CopyLate(n);
    for (const GraphOutput& output : graph_.outputs()) {
      out_.graph.AddOutput(output.name, first_[output.value], output.into == kNoValue ? kNoValue : first_[output.into]);
    }
    return std::move(out_);
  }

 private:
  using Map = std::vector<ValueId>;

  void MarkViews() {
    again_.resize(graph_.nodes().size(), false);
    for (int32_t n = 0; n < boundary_; ++n) {
      const Node& node = graph_.nodes()[n];
      const OpRow* row = FindOp(node.op);
      if (row == nullptr || !row->view) continue;
      const int32_t of = graph_.value(node.inputs[0]).node;
      again_[n] = of >= 0 && again_[of];
    }
  }

  // A late reader comes: clones what it lacks, deepest first.
  void CopyLate(int32_t late) {
    std::vector<int32_t> open = {late};
    while (!open.empty()) {
      const int32_t n = open.back();
      const size_t before = open.size();
      for (ValueId v : graph_.nodes()[n].inputs) {
        if (v != kNoValue && IsCloned(v) && second_[v] == kNoValue) open.push_back(graph_.value(v).node);
      }
      if (open.size() > before) continue;
      open.pop_back();
      if (n == late) {
        Copy(n, first_);
      } else if (second_[graph_.nodes()[n].outputs[0]] == kNoValue) {
        Copy(n, second_);
      }
    }
  }

  bool IsCloned(ValueId v) const {
    const int32_t n = graph_.value(v).node;
    return n >= 0 && n < boundary_ && again_[n];
  }

  // Copies the node, its results going to `map`. Early originals read originals; all others clones where there are some.
  void Copy(int32_t n, Map& map) {
    const Node& node = graph_.nodes()[n];
    const bool late = n >= boundary_ || &map == &second_;
    std::vector<ValueId> inputs;
    std::vector<Type> types;
    for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? kNoValue : late && IsCloned(v) ? second_[v] : first_[v]);
    for (ValueId v : node.outputs) types.push_back(graph_.type(v));
    const std::vector<ValueId> outputs = out_.graph.AddNode(node.op, std::move(inputs), node.attrs, std::move(types), node.source).outputs;
    out_.origin.push_back(n);
    for (size_t i = 0; i < outputs.size(); ++i) Keep(node.outputs[i], outputs[i], map);
  }

  void Keep(ValueId old, ValueId now, Map& map) {
    map[old] = now;
    out_.graph.SetValueName(now, graph_.value(old).name);
  }

  const Graph& graph_;
  const int32_t boundary_;
  std::vector<bool> again_;
  Map first_, second_;  // old value → its original, its clone
  Rematerialized out_;
};

}  // namespace

std::vector<bool> DependsOn(const Graph& graph, std::string_view seeds) {
  std::vector<bool> value(graph.values().size(), false), node(graph.nodes().size(), false);
  for (const GraphInput& input : graph.inputs()) {
    value[input.value] = input.kind == InputKind::kFeed && std::string_view(input.name).starts_with(seeds);
  }
  for (size_t n = 0; n < node.size(); ++n) {
    const auto& inputs = graph.nodes()[n].inputs;
    node[n] = std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) { return v != kNoValue && value[v]; });
    for (ValueId v : graph.nodes()[n].outputs) value[v] = node[n];
  }
  return node;
}

int32_t FirstBackwardNode(const Graph& graph, std::string_view seeds) {
  const std::vector<bool> backward = DependsOn(graph, seeds);
  return static_cast<int32_t>(std::find(backward.begin(), backward.end(), true) - backward.begin());
}

Rematerialized Rematerialize(const Graph& graph, int32_t boundary, const std::vector<bool>& again) {
  return Cloner(graph, boundary, again).Run();
}

}  // namespace onnxtrain
