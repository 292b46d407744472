#include "backends/cpu/layout_assignment.h"

#include <algorithm>
#include <numeric>

namespace onnxtrain::cpu {
namespace {

constexpr int kSweeps = 4;
constexpr double kNever = 1e18;

class Assigner {
 public:
  Assigner(const Graph& graph, const std::vector<LayoutWish>& wishes, const std::vector<bool>& inseparable)
      : graph_(graph), wishes_(wishes), readers_(Readers(graph)), last_(graph.nodes().size(), false) {
    is_output_.assign(graph.values().size(), false);
    for (const GraphOutput& output : graph.outputs()) is_output_[output.value] = true;
    for (size_t v = 0; v < graph.values().size(); ++v) {
      const Type& type = graph.type(static_cast<ValueId>(v));
      bytes_.push_back(inseparable[v] ? kNever : MovesNothing(type.shape) ? 0 : static_cast<double>(type.bytes()));
    }
  }

  std::vector<bool> Run() {
    SpreadFromFixed();
    bool changed = true;
    for (int sweep = 0; sweep < kSweeps && changed; ++sweep) changed = Sweep(sweep % 2 != 0);
    return last_;
  }

 private:
  using Kind = LayoutWish::Kind;

  bool ReadsMoved(int32_t n, ValueId v) const {
    const auto& inputs = graph_.nodes()[n].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == v && (wishes_[n].slots.inputs >> std::min<size_t>(i, 31) & 1) != 0) return true;
    }
    return false;
  }

  bool MakesMoved(ValueId v) const {
    const Value& value = graph_.value(v);
    return value.node >= 0 && (wishes_[value.node].slots.outputs >> std::min(value.index, 31) & 1) != 0;
  }

  // Calls f for the values that have the node's layout.
  template <typename F>
  void ForMoved(int32_t n, F&& f) const {
    const Node& node = graph_.nodes()[n];
    for (ValueId v : node.inputs) {
      if (v != kNoValue && ReadsMoved(n, v)) f(v);
    }
    for (ValueId v : node.outputs) {
      if (MakesMoved(v)) f(v);
    }
  }

  // What is connected to a node that wants it starts channels last.
  void SpreadFromFixed() {
    std::vector<int32_t> stack;
    const auto push = [&](int32_t n) {
      if (last_[n] || wishes_[n].kind == Kind::kPlain) return;
      last_[n] = true;
      stack.push_back(n);
    };
    for (size_t n = 0; n < wishes_.size(); ++n) {
      if (wishes_[n].kind == Kind::kLast) push(static_cast<int32_t>(n));
    }
    while (!stack.empty()) {
      const int32_t n = stack.back();
      stack.pop_back();
      ForMoved(n, [&](ValueId v) {
        if (MakesMoved(v)) push(graph_.value(v).node);
        for (int32_t r : readers_[v]) {
          if (ReadsMoved(r, v)) push(r);
        }
      });
    }
  }

  double Cost(ValueId v) const {
    if (bytes_[v] == 0) return 0;
    const bool made = MakesMoved(v) && last_[graph_.value(v).node];
    bool other = is_output_[v] && made;
    for (int32_t r : readers_[v]) other |= (last_[r] && ReadsMoved(r, v)) != made;
    return other ? bytes_[v] : 0;
  }

  double CostAround(int32_t n) const {
    double cost = 0;
    ForMoved(n, [&](ValueId v) { cost += Cost(v); });
    return cost;
  }

  bool TryFlip(int32_t n) {
    if (wishes_[n].kind != Kind::kFollow) return false;
    const double before = CostAround(n);
    last_[n] = !last_[n];
    if (CostAround(n) < before) return true;
    last_[n] = !last_[n];
    return false;
  }

  bool Sweep(bool backwards) {
    const auto nodes = static_cast<int32_t>(last_.size());
    bool changed = false;
    for (int32_t i = 0; i < nodes; ++i) changed |= TryFlip(backwards ? nodes - 1 - i : i);
    return changed;
  }

  const Graph& graph_;
  const std::vector<LayoutWish>& wishes_;
  const std::vector<std::vector<int32_t>> readers_;
  std::vector<bool> is_output_;
  std::vector<double> bytes_;  // by value: what it costs to have it in both layouts
  std::vector<bool> last_;
};

}  // namespace

bool MovesNothing(const Shape& shape) {
  return shape.size() < 3 || shape[1] == 1 || std::all_of(shape.begin() + 2, shape.end(), [](int64_t d) { return d == 1; });
}

std::vector<bool> AssignLayouts(const Graph& graph, const std::vector<LayoutWish>& wishes, const std::vector<bool>& inseparable) {
  return Assigner(graph, wishes, inseparable).Run();
}

}  // namespace onnxtrain::cpu
