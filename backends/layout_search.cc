#include "backends/layout_search.h"

#include <algorithm>
#include <numeric>

#include "frontend/ops/layout.h"
#include "frontend/passes/match.h"

namespace onnxtrain {
namespace {

constexpr int kSweeps = 4;
constexpr double kNever = 1e18;

class LayoutSearch {
 public:
  LayoutSearch(const Graph& graph, const std::vector<LayoutConstraint>& constraints,
               const std::vector<bool>& inseparable)
      : graph_(graph), constraints_(constraints), pattern_(graph), nhwc_(graph.nodes().size(), false) {
    for (size_t v = 0; v < graph.values().size(); ++v) {
      const Type& type = graph.type(static_cast<ValueId>(v));
      bytes_.push_back(inseparable[v]                      ? kNever
                       : IsTrivialChannelsLast(type.shape) ? 0
                                                           : static_cast<double>(type.bytes()));
    }
  }

  std::vector<bool> Run() {
    FindReads();
    PropagateFromFixed();
    CountReaders();
    bool changed = true;
    for (int sweep = 0; sweep < kSweeps && changed; ++sweep) changed = Sweep(sweep % 2 != 0);
    return nhwc_;
  }

 private:
  using Kind = LayoutConstraint::Kind;

  bool WritesInNodeLayout(ValueId v) const {
    const Value& value = graph_.value(v);
    return value.node >= 0 && HasBit(constraints_[value.node].operands.outputs, value.index);
  }

  // Fills reads_, readers_ and operands_. Counts an operand in the node's own layout once per node.
  void FindReads() {
    reads_.resize(nhwc_.size());
    readers_.resize(bytes_.size());
    operands_.assign(bytes_.size(), 0);
    std::vector<int32_t> reader(bytes_.size(), -1);  // by value: the last node that reads it in its layout
    for (int32_t n = 0; n < std::ssize(reads_); ++n) {
      const auto& inputs = graph_.nodes()[n].inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i] != kNoValue && HasBit(constraints_[n].operands.inputs, i)) reader[inputs[i]] = n;
      }
      for (ValueId v : inputs) {
        if (v != kNoValue) ++operands_[v];
        if (v == kNoValue || reader[v] != n) continue;
        reads_[n].push_back(v);
        readers_[v].push_back(n);
      }
    }
  }

  // Calls f for the operands and outputs that have the node's layout.
  template <typename F>
  void ForEachInNodeLayout(int32_t n, F&& f) const {
    for (ValueId v : reads_[n]) f(v);
    for (ValueId v : graph_.nodes()[n].outputs) {
      if (WritesInNodeLayout(v)) f(v);
    }
  }

  // Marks as channels last every node connected to one that requires it: the start of the search.
  void PropagateFromFixed() {
    std::vector<int32_t> stack;
    const auto push = [&](int32_t n) {
      if (nhwc_[n] || constraints_[n].kind == Kind::kRowMajor) return;
      nhwc_[n] = true;
      stack.push_back(n);
    };
    for (size_t n = 0; n < constraints_.size(); ++n) {
      if (constraints_[n].kind == Kind::kNhwc) push(static_cast<int32_t>(n));
    }
    std::vector<bool> seen(bytes_.size(), false);  // by value
    while (!stack.empty()) {
      const int32_t n = stack.back();
      stack.pop_back();
      ForEachInNodeLayout(n, [&](ValueId v) {
        if (seen[v]) return;
        seen[v] = true;
        if (WritesInNodeLayout(v)) push(graph_.value(v).node);
        for (int32_t r : readers_[v]) push(r);
      });
    }
  }

  void CountReaders() {
    nhwc_readers_.assign(bytes_.size(), 0);
    for (size_t v = 0; v < bytes_.size(); ++v) {
      for (int32_t r : readers_[v]) nhwc_readers_[v] += nhwc_[r];
    }
  }

  void Flip(int32_t n) {
    nhwc_[n] = !nhwc_[n];
    for (ValueId v : reads_[n]) nhwc_readers_[v] += nhwc_[n] ? 1 : -1;
  }

  double Cost(ValueId v) const {
    if (bytes_[v] == 0) return 0;
    const bool made = WritesInNodeLayout(v) && nhwc_[graph_.value(v).node];
    const bool other = made ? pattern_.IsOutput(v) || nhwc_readers_[v] < operands_[v] : nhwc_readers_[v] > 0;
    return other ? bytes_[v] : 0;
  }

  double CostAround(int32_t n) const {
    double cost = 0;
    ForEachInNodeLayout(n, [&](ValueId v) { cost += Cost(v); });
    return cost;
  }

  bool TryFlip(int32_t n) {
    if (constraints_[n].kind != Kind::kPropagate) return false;
    const double before = CostAround(n);
    Flip(n);
    if (CostAround(n) < before) return true;
    Flip(n);
    return false;
  }

  bool Sweep(bool backwards) {
    const auto nodes = static_cast<int32_t>(nhwc_.size());
    bool changed = false;
    for (int32_t i = 0; i < nodes; ++i) changed |= TryFlip(backwards ? nodes - 1 - i : i);
    return changed;
  }

  const Graph& graph_;
  const std::vector<LayoutConstraint>& constraints_;
  const Pattern pattern_;
  std::vector<double> bytes_;  // by value: cost of having it in both layouts
  std::vector<bool> nhwc_;
  std::vector<std::vector<ValueId>> reads_;    // by node: operands in its layout
  std::vector<std::vector<int32_t>> readers_;  // by value: the nodes that read it in their layout, once per operand
  std::vector<int32_t> nhwc_readers_;          // by value: how many of these are channels last
  std::vector<int32_t> operands_;              // by value: how many operands of all nodes are this value
};

LayoutConstraint FindTransposeConstraint(const Node& node) {
  const std::vector<int64_t> perm = node.attrs.Ints("perm");
  const int rank = static_cast<int>(perm.size());
  if (rank < 3) return {};
  if (perm == NchwToNhwcPerm(rank)) return {LayoutConstraint::Kind::kPropagate, {.inputs = 1}};
  if (perm == NhwcToNchwPerm(rank)) return {LayoutConstraint::Kind::kPropagate, {.outputs = 1}};
  return {};
}

}  // namespace

LayoutConstraint FindReorderConstraint(const Graph& graph, const Node& node) {
  if (node.op == "Transpose") return FindTransposeConstraint(node);
  const LayoutOperands operands = FindLayoutOperands(graph, node);
  if (!operands.any_order) return {};
  const int rank = FindLayoutRank(graph, node, operands);
  if (rank < 3 || !KeepsAxisOrder(*FindOp(node.op), node.attrs, rank)) return {};
  return {LayoutConstraint::Kind::kPropagate, operands};
}

std::vector<bool> SearchLayouts(const Graph& graph, const std::vector<LayoutConstraint>& constraints,
                                const std::vector<bool>& inseparable) {
  return LayoutSearch(graph, constraints, inseparable).Run();
}

}  // namespace onnxtrain
