#include "frontend/passes/elementwise_forms.h"

#include "frontend/ops/row.h"
#include "frontend/passes/match.h"

namespace onnxtrain {
namespace {

constexpr int kMaxViews = 8;  // between a slice and its place in the rotated head

// x of x·σ(x), or kNoValue.
ValueId FindSwish(const Pattern& pattern, ValueId v) {
  const Node* mul = pattern.Producer(v, "Mul");
  if (mul == nullptr) return kNoValue;
  for (size_t i : {0, 1}) {
    const Node* sigmoid = pattern.Producer(mul->inputs[1 - i], "Sigmoid");
    if (sigmoid != nullptr && sigmoid->inputs[0] == mul->inputs[i]) return mul->inputs[i];
  }
  return kNoValue;
}

// "SwiGlu", "GeGlu" or "". What is gated is neither a weight nor x itself.
std::string FindGate(const Pattern& pattern, const Node& node) {
  if (node.op != "Mul") return "";
  for (size_t i : {0, 1}) {
    const ValueId gate = node.inputs[i], gated = node.inputs[1 - i];
    if (pattern.IsWeight(gated) || pattern.graph().type(gated) != pattern.graph().type(gate)) continue;
    const Node* gelu = pattern.Producer(gate, "Gelu");
    if (gelu != nullptr && gelu->inputs[0] != gated) return "GeGlu";
    const ValueId x = FindSwish(pattern, gate);
    if (x != kNoValue && x != gated) return "SwiGlu";
  }
  return "";
}

// What a part of a Concat is cut out of, and with which sign.
struct Cut {
  ValueId source = kNoValue;
  bool negated = false;
};

Cut FindCut(const Pattern& pattern, ValueId v) {
  Cut cut;
  for (int step = 0; step < kMaxViews; ++step) {
    const Node* node = pattern.graph().producer(v);
    if (node == nullptr) return {};
    const OpRow* row = FindOp(node->op);
    const bool moves = node->op == "Transpose" || (row != nullptr && row->view);
    if (node->op == "Slice" || node->op == "Gather") return {node->inputs[0], cut.negated};
    if (node->op != "Neg" && !moves) return {};
    cut.negated ^= node->op == "Neg";
    v = node->inputs[0];
  }
  return {};
}

// A Concat of two parts of one value, one of them negated.
bool IsRotation(const Pattern& pattern, const Node& node) {
  if (node.op != "Concat" || node.inputs.size() != 2 || pattern.IsWeight(node.outputs[0])) return false;
  const Cut first = FindCut(pattern, node.inputs[0]), second = FindCut(pattern, node.inputs[1]);
  return first.source != kNoValue && first.source == second.source && first.negated != second.negated;
}

}  // namespace

std::map<std::string, int> CountElementwiseForms(const Graph& graph) {
  const Pattern pattern(graph);
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes()) {
    if (const std::string gate = FindGate(pattern, node); !gate.empty()) ++counts[gate];
    if (IsRotation(pattern, node)) ++counts["RotaryEmbedding"];
  }
  return counts;
}

}  // namespace onnxtrain
