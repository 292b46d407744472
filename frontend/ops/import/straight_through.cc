#include "frontend/ops/import/straight_through.h"

#include <set>
#include <utility>
#include <vector>

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

// Whether `sum` is q − x of such a q.
bool IsErrorOf(Val sum, Val x) {
  const Graph& graph = sum.b().graph();
  const Node* node = graph.producer(sum.id());
  return node != nullptr && node->op == "Sub" && node->inputs[1] == x.id() && graph.type(node->inputs[0]) == x.type() &&
         DependsThroughStep(graph, node->inputs[0], x.id());
}

}  // namespace

Val ImportStraightThrough(Val a, Val b) {
  if (!a || !b || !IsFloat(a.dtype()) || a.type() != b.type()) return Val();
  for (const auto& [error, x] : {std::pair(b, a), std::pair(a, b)}) {
    if (IsErrorOf(error, x)) return StraightThrough(a + b, x);
  }
  return Val();
}

}  // namespace onnxtrain
