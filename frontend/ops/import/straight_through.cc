#include "frontend/ops/import/straight_through.h"

#include <set>
#include <utility>
#include <vector>

#include "frontend/ops/formula.h"
#include "frontend/ops/quantize.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

constexpr size_t kMostVisited = 256;  // values; quantizers, softmaxes with a one-hot maximum and codebooks are smaller

// Whether no gradient flows through the operator, as through Round and ArgMax.
bool StopsGradient(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->grad_status == GradStatus::kZero;
}

// Whether `value` depends on x through an operator that stops gradients.
bool DependsThroughStep(const Graph& graph, ValueId value, ValueId x) {
  std::set<std::pair<ValueId, bool>> seen = {{value, false}};  // and whether such an operator is on the way
  std::vector<std::pair<ValueId, bool>> open(seen.begin(), seen.end());
  while (!open.empty() && seen.size() < kMostVisited) {
    const auto [v, stopped] = open.back();
    open.pop_back();
    if (v == x) {
      if (stopped) return true;
      continue;
    }
    const Node* node = graph.producer(v);
    if (node == nullptr) continue;
    for (const ValueId input : node->inputs) {
      const std::pair<ValueId, bool> next = {input, stopped || StopsGradient(*node)};
      if (input != kNoValue && seen.insert(next).second) open.push_back(next);
    }
  }
  return false;
}

// Looks for forms of q in operands that were computed of q and x.
class Finder {
 public:
  explicit Finder(Val x) : graph_(x.b().graph()), x_(x) {}

  // Whether `v` is op(q, x), or op(x, q).
  bool IsOfStepAndX(Val v, std::string_view op) const { return IsStep(Operand(v, op, 1)); }
  bool IsOfXAndStep(Val v, std::string_view op) const { return IsStep(Operand(v, op, 0)); }

 private:
  // The other operand of op where x is the operand at `place`.
  ValueId Operand(Val v, std::string_view op, size_t place) const {
    const Node* node = graph_.producer(v.id());
    return node != nullptr && node->op == op && node->inputs[place] == x_.id() ? node->inputs[1 - place] : kNoValue;
  }

  bool IsStep(ValueId q) const {
    return q != kNoValue && graph_.type(q) == x_.type() && DependsThroughStep(graph_, q, x_.id());
  }

  const Graph& graph_;
  Val x_;
};

// The x of an estimator; invalid where it is none.
Val FindCarrier(std::string_view op, Val a, Val b) {
  const Finder of_a(a), of_b(b);
  if (op == "Add") return of_a.IsOfStepAndX(b, "Sub") ? a : of_b.IsOfStepAndX(a, "Sub") ? b : Val();
  if (op != "Sub") return Val();
  if (of_a.IsOfXAndStep(b, "Sub")) return a;
  return of_b.IsOfStepAndX(a, "Add") || of_b.IsOfXAndStep(a, "Add") ? b : Val();
}

}  // namespace

Val ImportStraightThrough(std::string_view op, Val a, Val b) {
  if (!a || !b || !IsFloat(a.dtype()) || a.type() != b.type()) return Val();
  const Val x = FindCarrier(op, a, b);
  return x ? StraightThrough(Binary(op, a, b), x) : Val();
}

}  // namespace onnxtrain
