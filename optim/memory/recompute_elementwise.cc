#include "optim/memory/recompute_elementwise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "frontend/ops/row.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/hoist.h"
#include "frontend/passes/min_cut.h"
#include "frontend/passes/rematerialize.h"
#include "frontend/passes/rewrite.h"
#include "optim/step/loss.h"
#include "optim/step/program/optimize.h"

namespace onnxtrain {
namespace {

constexpr int64_t kFewElements = 4096;  // values of fewer are kept
constexpr double kKept = 4;             // price of kept bytes, in moves: they are written and read, and occupy memory

bool IsElementwise(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->elementwise && node.outputs.size() == 1;
}

bool IsView(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->view;
}

class ElementwiseCut {
 public:
  explicit ElementwiseCut(const Graph& graph)
      : graph_(graph),
        users_(ComputeUsers(graph)),
        of_weights_(FindWeightValues(graph)),
        backward_(DependsOn(graph, kInverseDenominatorFeed)) {
    AddOperandsOfGradients();
  }

  Graph Apply() const {
    std::vector<int32_t> order;
    for (const bool late : {false, true}) {
      for (int32_t n = 0; n < std::ssize(backward_); ++n) {
        if (backward_[n] == late) order.push_back(n);
      }
    }
    const std::vector<bool> recomputed = Solve();
    std::vector<Clones> clones(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      if (recomputed[order[i]]) clones[i] = Clones::Once();
    }
    const auto boundary = static_cast<int32_t>(std::ranges::count(backward_, false));
    if (std::ranges::none_of(recomputed, [](bool r) { return r; })) return graph_;
    return Dce(Rematerialize(ReorderNodes(graph_, order), boundary, clones).graph);
  }

 private:
  // Counts elementwise nodes and views that only the backward pass reads, such as factors of a derivative, to it.
  void AddOperandsOfGradients() {
    std::vector<bool> is_output(graph_.values().size());
    for (const GraphOutput& output : graph_.outputs()) is_output[output.value] = true;
    for (size_t n = backward_.size(); n-- > 0;) {
      const Node& node = graph_.nodes()[n];
      if (backward_[n] || (!IsElementwise(node) && !IsView(node))) continue;
      const ValueId v = node.outputs[0];
      backward_[n] = !is_output[v] && !users_[v].empty() &&
                     std::ranges::all_of(users_[v], [&](int32_t user) { return backward_[user]; });
    }
  }

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

  // Returns by node whether the backward pass computes it again. The cut runs from the readers to the producers and
  // takes the side of the readers that is smallest: of equal cuts, the one that repeats least.
  std::vector<bool> Solve() const {
    const auto values = static_cast<int32_t>(graph_.values().size());
    const int32_t readers = 2 * values, producers = readers + 1;
    MinCut cut(producers + 1);
    for (ValueId v = 0; v < values; ++v) {
      const Node* node = graph_.producer(v);
      if (IsFree(v) || backward_[graph_.value(v).node]) continue;
      if (IsReadByBackward(v)) cut.AddEdge(readers, 2 * v, MinCut::kUncuttable);
      cut.AddEdge(2 * v, 2 * v + 1, Units(kKept * MoveSeconds(static_cast<double>(graph_.type(v).bytes()))));
      if (!CanRecompute(v)) {
        cut.AddEdge(2 * v + 1, producers, MinCut::kUncuttable);
        continue;
      }
      cut.AddEdge(2 * v + 1, producers, Units(NodeSeconds(graph_, *node) - MoveSeconds(graph_, *node)));
      for (ValueId operand : node->inputs) {
        if (operand != kNoValue && !IsFree(operand)) cut.AddEdge(2 * v + 1, 2 * operand, MinCut::kUncuttable);
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
  const Users users_;                   // by value
  const std::vector<bool> of_weights_;  // by value
  std::vector<bool> backward_;          // by node
};

}  // namespace

Graph RecomputeElementwise(const Graph& legal) { return ElementwiseCut(legal).Apply(); }

}  // namespace onnxtrain
