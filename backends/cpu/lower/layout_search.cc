#include "backends/cpu/lower/layout_search.h"

#include <algorithm>
#include <numeric>

#include "frontend/passes/match.h"

namespace onnxtrain::cpu {
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
    PropagateFromFixed();
    bool changed = true;
    for (int sweep = 0; sweep < kSweeps && changed; ++sweep) changed = Sweep(sweep % 2 != 0);
    return nhwc_;
  }

 private:
  using Kind = LayoutConstraint::Kind;

  bool ReadsInNodeLayout(int32_t n, ValueId v) const {
    const auto& inputs = graph_.nodes()[n].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == v && (constraints_[n].operands.inputs >> std::min<size_t>(i, 31) & 1) != 0) return true;
    }
    return false;
  }

  bool WritesInNodeLayout(ValueId v) const {
    const Value& value = graph_.value(v);
    return value.node >= 0 && (constraints_[value.node].operands.outputs >> std::min(value.index, 31) & 1) != 0;
  }

  // Calls f for the values that have the node's layout.
  template <typename F>
  void ForEachInNodeLayout(int32_t n, F&& f) const {
    const Node& node = graph_.nodes()[n];
    for (ValueId v : node.inputs) {
      if (v != kNoValue && ReadsInNodeLayout(n, v)) f(v);
    }
    for (ValueId v : node.outputs) {
      if (WritesInNodeLayout(v)) f(v);
    }
  }

  // Starts channels last: all nodes connected to one that requires it.
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
    while (!stack.empty()) {
      const int32_t n = stack.back();
      stack.pop_back();
      ForEachInNodeLayout(n, [&](ValueId v) {
        if (WritesInNodeLayout(v)) push(graph_.value(v).node);
        for (int32_t r : pattern_.users(v)) {
          if (ReadsInNodeLayout(r, v)) push(r);
        }
      });
    }
  }

  double Cost(ValueId v) const {
    if (bytes_[v] == 0) return 0;
    const bool made = WritesInNodeLayout(v) && nhwc_[graph_.value(v).node];
    bool other = pattern_.IsOutput(v) && made;
    for (int32_t r : pattern_.users(v)) other |= (nhwc_[r] && ReadsInNodeLayout(r, v)) != made;
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
    nhwc_[n] = !nhwc_[n];
    if (CostAround(n) < before) return true;
    nhwc_[n] = !nhwc_[n];
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
};

}  // namespace

std::vector<bool> SearchLayouts(const Graph& graph, const std::vector<LayoutConstraint>& constraints,
                                const std::vector<bool>& inseparable) {
  return LayoutSearch(graph, constraints, inseparable).Run();
}

}  // namespace onnxtrain::cpu
