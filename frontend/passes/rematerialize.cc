#include "frontend/passes/rematerialize.h"

#include <algorithm>

#include "frontend/base/strings.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

class Cloner {
 public:
  Cloner(const Graph& graph, int32_t boundary, const std::vector<Clones>& clones)
      : graph_(graph),
        boundary_(boundary),
        clones_(clones),
        cloneable_(graph.nodes().size(), false),
        made_(graph.nodes().size(), 0),
        first_(graph.values().size(), kNoValue),
        clone_(first_) {
    MarkViews();
  }

  Rematerialized Run() {
    for (const GraphInput& input : graph_.inputs()) {
      Keep(input.value, out_.graph.AddInput(input.kind, input.name, graph_.type(input.value)), first_);
    }
    for (int32_t n = 0; n < std::ssize(graph_.nodes()); ++n) cloneable_[n] ? Copy(n, 0, first_) : CopyBackward(n);
    for (const GraphOutput& output : graph_.outputs()) {
      out_.graph.AddOutput(output.name, first_[output.value], output.into == kNoValue ? kNoValue : first_[output.into]);
    }
    return std::move(out_);
  }

 private:
  using Map = std::vector<ValueId>;

  void MarkViews() {
    clones_.resize(graph_.nodes().size());
    for (int32_t n = 0; n < std::ssize(graph_.nodes()); ++n) {
      const Node& node = graph_.nodes()[n];
      cloneable_[n] = n < boundary_;
      const OpRow* row = FindOp(node.op);
      if (row == nullptr || !row->view) continue;
      const int32_t of = graph_.value(node.inputs[0]).node;
      cloneable_[n] = cloneable_[n] || (of >= 0 && cloneable_[of]);
      clones_[n] = of >= 0 && !IsSideOutput(graph_, node.inputs[0]) ? clones_[of] : Clones();
    }
  }

  // Copies a backward node after cloning the operands that it needs, deepest first.
  void CopyBackward(int32_t backward) {
    std::vector<int32_t> open = {backward};
    while (!open.empty()) {
      const int32_t n = open.back();
      const size_t before = open.size();
      for (ValueId v : graph_.nodes()[n].inputs) {
        const size_t serving = Serving(v, backward);
        if (serving > 0 && made_[graph_.value(v).node] != serving) open.push_back(graph_.value(v).node);
      }
      if (open.size() > before) continue;
      open.pop_back();
      if (n != backward && made_[n] == clones_[n].At(backward)) continue;
      Copy(n, backward, n == backward ? first_ : clone_);
      made_[n] = clones_[n].At(backward);
    }
  }

  // Returns the number of the clone of the producer that a backward user reads; 0 for the original.
  size_t Serving(ValueId v, int32_t reader) const {
    const int32_t of = v == kNoValue ? -1 : graph_.value(v).node;
    return of >= 0 && cloneable_[of] && !IsSideOutput(graph_, v) ? clones_[of].At(reader) : 0;
  }

  ValueId InputFor(int32_t reader, ValueId v) const {
    if (v == kNoValue) return v;
    return reader >= boundary_ && Serving(v, reader) > 0 ? clone_[v] : first_[v];
  }

  // Copies node n and stores its outputs in `map`. `reader` determines which clones its operands are: it is n itself,
  // the backward node that reads the clone, or 0 for an original.
  void Copy(int32_t n, int32_t reader, Map& map) {
    const Node& node = graph_.nodes()[n];
    ValueIds inputs;
    std::vector<Type> types;
    for (ValueId v : node.inputs) inputs.push_back(InputFor(reader, v));
    const std::string op = &map == &clone_ ? CloneOperator(graph_, node) : node.op;
    for (ValueId v : node.outputs) {
      if (op == node.op || types.empty()) {
        types.push_back(graph_.type(v));
      } else {
        inputs.push_back(first_[v]);
      }
    }
    const ValueIds outputs =
        out_.graph.AddNode(op, std::move(inputs), node.attrs, std::move(types), node.source).outputs;
    out_.origin.push_back(n);
    for (size_t i = 0; i < outputs.size(); ++i) Keep(node.outputs[i], outputs[i], map);
  }

  void Keep(ValueId old, ValueId now, Map& map) {
    map[old] = now;
    out_.graph.SetValueName(now, graph_.value(old).name);
  }

  const Graph& graph_;
  const int32_t boundary_;
  std::vector<Clones> clones_;
  std::vector<bool> cloneable_;  // by node: it precedes the boundary, or is a view of such a node
  std::vector<size_t> made_;     // by node: the number of its latest clone; 0: none
  Map first_, clone_;            // old value → copy of the original, latest clone
  Rematerialized out_;
};

}  // namespace

std::string CloneOperator(const Graph& graph, const Node& node) {
  const bool has_sides = node.outputs.size() > 1 && std::all_of(node.outputs.begin() + 1, node.outputs.end(),
                                                                [&](ValueId v) { return IsSideOutput(graph, v); });
  const std::string recompute = StrCat(node.op, "Recompute");
  return has_sides && FindOp(recompute) != nullptr ? recompute : node.op;
}

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

bool IsSideOutput(const Graph& graph, ValueId v) {
  constexpr size_t kMuchSmaller = 32;
  const int32_t node = graph.value(v).node;
  if (node < 0) return false;
  const auto& results = graph.nodes()[node].outputs;
  return std::any_of(results.begin(), results.end(), [&](ValueId r) {
    return r != v && graph.type(r).bytes() >= kMuchSmaller * graph.type(v).bytes();
  });
}

Rematerialized Rematerialize(const Graph& graph, int32_t boundary, const std::vector<Clones>& clones) {
  return Cloner(graph, boundary, clones).Run();
}

}  // namespace onnxtrain
