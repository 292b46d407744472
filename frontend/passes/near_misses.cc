#include "frontend/passes/recognize.h"

#include <algorithm>
#include <optional>

#include "frontend/base/strings.h"
#include "frontend/ops/row.h"
#include "frontend/passes/match.h"

namespace onnxtrain {
namespace {

constexpr int kMaxViews = 8;  // views followed between a Slice and the Concat of the rotated head

// Returns x if the value is x·σ(x), otherwise kNoValue.
ValueId FindSwish(const Pattern& pattern, ValueId v) {
  const Node* mul = pattern.Producer(v, "Mul");
  if (mul == nullptr) return kNoValue;
  for (size_t i : {0, 1}) {
    const Node* sigmoid = pattern.Producer(mul->inputs[1 - i], "Sigmoid");
    if (sigmoid != nullptr && sigmoid->inputs[0] == mul->inputs[i]) return mul->inputs[i];
  }
  return kNoValue;
}

// Returns "SwiGlu", "GeGlu" or "". The gated operand must be neither a weight nor x itself.
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

// The value that an operand of a Concat is sliced from, possibly negated.
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

// Returns true for a Concat of two slices of one value, one of them negated.
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

namespace {

constexpr int kMaxSteps = 6;  // nodes between Softmax and each product of attention

std::string Quoted(const Node& node) {
  return node.source->empty() ? node.op : StrCat(node.op, " '", *node.source, "'");
}

bool IsBetweenProducts(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && (row->elementwise || row->view || node.op == "Dropout" || node.op == "Transpose");
}

// Returns the nodes from the producer of a value back to an `op`, through elementwise operators and views; empty if
// there is no such chain. At each node, follows the operand that has the size of the result.
std::vector<const Node*> ChainTo(const Pattern& pattern, ValueId v, std::string_view op) {
  std::vector<const Node*> chain;
  for (int step = 0; step < kMaxSteps; ++step) {
    const Node* node = pattern.graph().producer(v);
    if (node == nullptr) return {};
    chain.push_back(node);
    if (node->op == op) return chain;
    if (!IsBetweenProducts(*node)) return {};
    const int64_t size = pattern.graph().type(v).elements();
    const auto next = std::ranges::find_if(node->inputs, [&](ValueId input) {
      return input != kNoValue && pattern.graph().type(input).dtype != DType::kBool && !pattern.IsWeight(input) &&
             pattern.graph().type(input).elements() == size;
    });
    if (next == node->inputs.end()) return {};
    v = *next;
  }
  return {};
}

// Returns true if Attention can express this node between its products.
bool IsExpressible(const Pattern& pattern, const Node& node) {
  if (node.op == "Mul" && std::ranges::any_of(node.inputs, [&](ValueId v) { return IsPerHead(pattern.graph(), v); }))
    return true;
  if (node.op == "Where" || node.op == "IsNaN") return true;
  if (node.op == "Tanh" || node.op == "Dropout") return true;
  if (node.op == "Add") return true;
  return (node.op == "Mul" || node.op == "Div") &&
         std::ranges::any_of(node.inputs, [&](ValueId v) { return pattern.Splat(v).has_value(); });
}

// Describes the first node of the chain that Attention cannot express or whose result is a graph output.
std::optional<std::string> FindObstacle(const Pattern& pattern, const std::vector<const Node*>& chain) {
  for (const Node* node : chain) {
    if (node != chain.back() && !IsExpressible(pattern, *node))
      return StrCat(Quoted(*node), " is between its products");
    if (pattern.IsOutput(node->outputs[0])) return StrCat("the result of ", Quoted(*node), " is an output");
  }
  return std::nullopt;
}

std::string WhyNoAttention(const Pattern& pattern, const Node& product, const std::vector<const Node*>& to_softmax,
                           const std::vector<const Node*>& to_scores) {
  const Graph& graph = pattern.graph();
  for (const auto* chain : {&to_softmax, &to_scores}) {
    if (const auto obstacle = FindObstacle(pattern, *chain)) return *obstacle;
  }
  const Node &softmax = *to_softmax.back(), &scores = *to_scores.back();
  if (softmax.attrs.Int("axis") != graph.type(softmax.outputs[0]).rank() - 1)
    return StrCat(Quoted(softmax), " is not over the keys");
  const auto leading = [&](ValueId v) {
    const Shape& shape = graph.type(v).shape;
    return Shape(shape.begin(), shape.end() - 2);
  };
  const Shape batch = leading(scores.inputs[0]);
  if (batch.empty()) return "it has no axis of heads";
  const auto fits = [&](const Shape& heads) {  // equal extents, or 1 for keys and values that all queries share
    return std::ranges::equal(heads, batch, [](int64_t n, int64_t of_queries) { return n == of_queries || n == 1; });
  };
  if (!fits(leading(scores.inputs[1])) || !fits(leading(product.inputs[1])))
    return "queries, keys and values have different heads";
  if (leading(scores.inputs[1]) != batch || leading(product.inputs[1]) != batch)
    return "its rows of scores are short, and repeating the keys that all heads read takes more";
  return "somebody else reads its scores, or both forms differ in value";
}

// Explains why a product of a Softmax of a product is not Attention.
std::optional<std::string> NearAttention(const Pattern& pattern, const Node& node) {
  if (node.op != "MatMul" || pattern.IsWeight(node.outputs[0])) return std::nullopt;
  const auto to_softmax = ChainTo(pattern, node.inputs[0], "Softmax");
  if (to_softmax.empty()) return std::nullopt;
  const auto to_scores = ChainTo(pattern, to_softmax.back()->inputs[0], "MatMul");
  if (to_scores.empty()) return std::nullopt;
  return StrCat("Attention: ", Quoted(node), ": ", WhyNoAttention(pattern, node, to_softmax, to_scores));
}

// Explains why √(mean + ε), the denominator of a normalization, is not part of LayerNorm or RmsNorm.
std::optional<std::string> NearNorm(const Pattern& pattern, const Node& node) {
  if (node.op != "Sqrt" && node.op != "Rsqrt") return std::nullopt;
  const Node* sum = pattern.Producer(node.inputs[0], "Add");
  if (sum == nullptr) return std::nullopt;
  for (ValueId v : sum->inputs) {
    const Node* mean = pattern.Producer(v, "ReduceMean");
    if (mean == nullptr) continue;
    const std::vector<int64_t> axes = mean->attrs.Ints("axes");
    const int rank = pattern.graph().type(mean->inputs[0]).rank();
    const bool last = !axes.empty() && std::ranges::max(axes) == rank - 1 &&
                      std::ranges::min(axes) == rank - static_cast<int64_t>(axes.size());
    return StrCat("LayerNorm or RmsNorm: ", Quoted(node), ": ",
                  last ? "no form of them has its value" : "its mean is not over the last axes");
  }
  return std::nullopt;
}

std::optional<std::string> NearGelu(const Pattern&, const Node& node) {
  if (node.op != "Erf") return std::nullopt;
  return StrCat("Gelu: ", Quoted(node), ": no form of it has the value around this node");
}

}  // namespace

std::vector<std::string> FindNearMisses(const Graph& graph) {
  const Pattern pattern(graph);
  std::vector<std::string> misses;
  for (const Node& node : graph.nodes()) {
    for (auto explain : {NearAttention, NearNorm, NearGelu}) {
      if (auto miss = explain(pattern, node)) misses.push_back(*std::move(miss));
    }
  }
  return misses;
}

}  // namespace onnxtrain
