// Finds elementwise values that are cheaper to compute twice than to keep.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "frontend/ops/row.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/hoist.h"
#include "frontend/passes/min_cut.h"
#include "frontend/passes/rematerialize.h"
#include "frontend/passes/rewrite.h"
#include "optim/memory/policy.h"
#include "optim/step/loss.h"
#include "optim/step/program/optimize.h"

namespace onnxtrain {
namespace {

constexpr int64_t kFewElements = 4096;  // values of fewer are kept
constexpr double kKept = 4;             // price of kept bytes, in moves: they are written and read, and occupy memory
constexpr int32_t kMostOperators = 32;  // that one kernel of the backward pass computes again

bool IsElementwise(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->elementwise && node.outputs.size() == 1;
}

bool IsView(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->view;
}

// The nodes of the backward pass: those that depend on a gradient, and elementwise nodes and views that only these
// read, such as factors of a derivative.
struct BackwardPass {
  explicit BackwardPass(const Graph& graph)
      : users(ComputeUsers(graph)), of_gradient(DependsOn(graph, kInverseDenominatorFeed)), nodes(of_gradient) {
    std::vector<bool> is_output(graph.values().size());
    for (const GraphOutput& output : graph.outputs()) is_output[output.value] = true;
    for (size_t n = nodes.size(); n-- > 0;) {
      const Node& node = graph.nodes()[n];
      if (nodes[n] || (!IsElementwise(node) && !IsView(node))) continue;
      const ValueId v = node.outputs[0];
      nodes[n] = !is_output[v] && !users[v].empty() &&
                 std::ranges::all_of(users[v], [&](int32_t user) { return nodes[user]; });
    }
  }

  Users users;                    // by value
  std::vector<bool> of_gradient;  // by node: depends on a gradient
  std::vector<bool> nodes;        // by node: belongs to the pass
};

class ElementwiseCut {
 public:
  explicit ElementwiseCut(const Graph& graph)
      : graph_(graph),
        of_weights_(FindWeightValues(graph)),
        pass_(graph),
        users_(pass_.users),
        backward_(pass_.nodes) {}

  Graph Apply() const {
    std::vector<int32_t> order;
    for (const bool late : {false, true}) {
      for (int32_t n = 0; n < std::ssize(backward_); ++n) {
        if (backward_[n] == late) order.push_back(n);
      }
    }
    const std::vector<bool> recomputed = Solve();
    if (std::ranges::none_of(recomputed, [](bool r) { return r; })) return graph_;
    std::vector<Clones> clones(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      if (recomputed[order[i]]) clones[i] = Clones::Once();
    }
    const auto boundary = static_cast<int32_t>(std::ranges::count(backward_, false));
    return Dce(Rematerialize(ReorderNodes(graph_, order), boundary, clones).graph);
  }

 private:
  bool IsReadByBackward(ValueId v) const {
    return std::ranges::any_of(users_[v], [&](int32_t user) { return backward_[user]; });
  }

  // Returns true if a kernel of the backward pass that reads v could compute it.
  bool CanRecompute(ValueId v) const {
    const Node* node = graph_.producer(v);
    if (node == nullptr || !IsElementwise(*node) || graph_.type(v).elements() < kFewElements) return false;
    return std::ranges::all_of(users_[v], [&](int32_t user) {
      const Node& reader = graph_.nodes()[user];
      if (!backward_[user]) return !IsView(reader) || !IsReadByBackward(reader.outputs[0]);
      return IsElementwise(reader) && graph_.type(reader.outputs[0]).shape == graph_.type(v).shape;
    });
  }

  // Returns true if v needs no memory for the backward pass: it is an input of the program, or a constant.
  bool IsFree(ValueId v) const { return graph_.IsInput(v) || of_weights_[v] || IsConstant(*graph_.producer(v)); }

  // Returns true if v costs nothing to read: it needs no memory, or is kept in any case.
  bool IsThere(ValueId v) const { return IsFree(v) || (IsReadByBackward(v) && !CanRecompute(v)); }

  // Returns by value the number of elementwise operators in its region, which the backward pass would compute together:
  // those that it needs and that are connected by values that are not there. 0: it needs none.
  std::vector<int32_t> MeasureRegions() const {
    const size_t values = graph_.values().size();
    std::vector<bool> needed(values);
    std::vector<ValueId> region(values);
    std::iota(region.begin(), region.end(), 0);
    const auto find = [&](ValueId v) {
      while (region[v] != v) v = region[v] = region[region[v]];
      return v;
    };
    for (size_t n = graph_.nodes().size(); n-- > 0;) {
      const ValueId v = graph_.nodes()[n].outputs[0];
      if (backward_[n] || IsConstant(graph_.nodes()[n]) || !CanRecompute(v)) continue;
      needed[v] = needed[v] || IsReadByBackward(v);
      for (ValueId operand : graph_.nodes()[n].inputs) {
        if (!needed[v] || operand == kNoValue || IsThere(operand)) continue;
        needed[operand] = true;
        region[find(operand)] = find(v);
      }
    }
    std::vector<int32_t> size(values);
    for (ValueId v = 0; v < static_cast<ValueId>(values); ++v) size[find(v)] += needed[v];
    for (ValueId v = 0; v < static_cast<ValueId>(values); ++v) size[v] = needed[v] ? size[find(v)] : 0;
    return size;
  }

  // Returns by node whether the backward pass computes it again. The cut runs from the readers to the producers and
  // takes the side of the readers that is smallest: of equal cuts, the one that repeats least. Regions that one kernel
  // could not compute are left out.
  std::vector<bool> Solve() const {
    const auto values = static_cast<int32_t>(graph_.values().size());
    const int32_t readers = 2 * values, producers = readers + 1;
    const std::vector<int32_t> region = MeasureRegions();
    const auto takes_part = [&](ValueId v) { return region[v] > 0 && region[v] <= kMostOperators; };
    MinCut cut(producers + 1);
    for (ValueId v = 0; v < values; ++v) {
      if (!takes_part(v)) continue;
      const Node* node = graph_.producer(v);
      if (IsReadByBackward(v)) cut.AddEdge(readers, 2 * v, MinCut::kUncuttable);
      cut.AddEdge(2 * v, 2 * v + 1, Units(kKept * MoveSeconds(static_cast<double>(graph_.type(v).bytes()))));
      if (!CanRecompute(v)) {
        cut.AddEdge(2 * v + 1, producers, MinCut::kUncuttable);
        continue;
      }
      cut.AddEdge(2 * v + 1, producers, Units(NodeSeconds(graph_, *node) - MoveSeconds(graph_, *node)));
      for (ValueId operand : node->inputs) {
        if (operand != kNoValue && takes_part(operand)) cut.AddEdge(2 * v + 1, 2 * operand, MinCut::kUncuttable);
      }
    }
    const std::vector<bool> side = cut.SourceSide(readers, producers);
    std::vector<bool> recomputed(graph_.nodes().size());
    for (ValueId v = 0; v < values; ++v) {
      if (side[2 * v] && side[2 * v + 1]) recomputed[graph_.value(v).node] = true;
    }
    return recomputed;
  }

  static int64_t Units(double seconds) { return std::llround(std::min(seconds, 1e4) * 1e12) + 1; }

  const Graph& graph_;
  const std::vector<bool> of_weights_;  // by value
  const BackwardPass pass_;
  const Users& users_;                 // by value
  const std::vector<bool>& backward_;  // by node
};

// Lets nodes of the backward pass that do not depend on a gradient read results of elementwise operators of the forward
// pass through views of the same shape.
Graph SeparateBackward(const Graph& graph) {
  const BackwardPass pass(graph);
  Graph result;
  Rewriter r(graph, &result);
  std::map<ValueId, Val> views;
  const auto view = [&](ValueId v) {
    const Node* node = v == kNoValue ? nullptr : graph.producer(v);
    const bool separates = node != nullptr && IsElementwise(*node) && !pass.nodes[graph.value(v).node] &&
                           graph.type(v).elements() >= kFewElements && graph.type(v).layout == Layout::kRowMajor;
    if (!separates) return r.Map(v);
    Val& known = views[v];
    if (!known) known = r.b().Op("Reshape", {r.Map(v)}, {{"shape", graph.type(v).shape}});
    return known;
  };
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (!pass.nodes[n] || pass.of_gradient[n] || !IsElementwise(node)) {
      r.Copy(node);
      continue;
    }
    std::vector<Val> inputs;
    for (const ValueId v : node.inputs) inputs.push_back(view(v));
    r.b().set_source(node.source);
    r.Set(node.outputs[0], r.b().Op(node.op, inputs, node.attrs));
  }
  r.CopyOutputs();
  return result;
}

}  // namespace

Graph RecomputeElementwise(const Graph& legal) {
  const std::vector<bool> of_gradient = DependsOn(legal, kInverseDenominatorFeed);
  if (std::ranges::find(of_gradient, true) == of_gradient.end()) return legal;
  return SeparateBackward(ElementwiseCut(legal).Apply());
}

}  // namespace onnxtrain
