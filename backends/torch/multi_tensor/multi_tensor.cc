#include "backends/torch/multi_tensor/multi_tensor.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "backends/promote_types.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain::aten {
namespace {

absl::StatusOr<std::vector<Type>> InferCasts(const TypeContext& c) {
  const auto to = ParseDType(c.attrs.String("to"));
  if (!to.has_value()) return absl::InvalidArgumentError("unknown element type");
  std::vector<Type> types;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    RETURN_IF_ERROR(RequireFloat(c, i));
    types.push_back({*to, c.in(i).shape});
  }
  return types;
}

constexpr int64_t kMostSmallElements = 1 << 16;

// Returns true if casting the weight early needs little more memory: it is small, or its cast is live until a second
// use anyway. Casting other weights early would keep more of them live at once.
bool MayCastEarly(const Pattern& pattern, ValueId weight) {
  const Graph& graph = pattern.graph();
  if (graph.type(weight).elements() <= kMostSmallElements) return true;
  std::span<const int32_t> users = pattern.users(weight);
  while (users.size() == 1) {
    const Node& user = graph.nodes()[users.front()];
    if (user.op != "Transpose" && user.op != "Reshape") return false;
    users = pattern.users(user.outputs[0]);
  }
  return !users.empty();
}

using Types = std::pair<DType, DType>;  // from, to

// Returns the casts to join, by their types.
std::map<Types, std::vector<const Node*>> FindCasts(const Graph& graph) {
  const Pattern pattern(graph);
  std::map<Types, std::vector<const Node*>> casts;
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind != InputKind::kParameter) continue;
    std::vector<const Node*> of_input;
    for (int32_t n : pattern.users(input.value)) {
      const Node& node = graph.nodes()[n];
      if (node.op == "Cast" && IsHalf(graph.type(node.outputs[0]).dtype)) of_input.push_back(&node);
    }
    if (of_input.size() != 1 || !MayCastEarly(pattern, of_input[0]->outputs[0])) continue;
    casts[{graph.type(input.value).dtype, graph.type(of_input[0]->outputs[0]).dtype}].push_back(of_input[0]);
  }
  return casts;
}

}  // namespace

void RegisterCastTogether() {
  static const auto* rows =
      new std::vector<OpRow>{{.name = kCastTogether,
                              .inputs = {1, Arity::kMany},
                              .outputs = kOutputsFromAttr,
                              .attrs = {{"to", std::string(), true}, {"num_outputs", int64_t{1}, true}},
                              .infer = InferCasts}};
  RegisterOps(*rows);
}

absl::StatusOr<Graph> CastWeightsTogether(const Graph& graph, std::vector<ValueId>* values) {
  RegisterCastTogether();
  std::map<const Node*, const std::vector<const Node*>*> groups;  // by the first cast of a group
  const auto casts = FindCasts(graph);
  for (const auto& [types, group] : casts)
    if (group.size() > 1) groups[*std::ranges::min_element(group)] = &group;
  const auto join = [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    const auto it = groups.find(&node);
    if (it == groups.end()) return std::nullopt;
    const std::vector<const Node*>& group = *it->second;
    std::vector<Val> weights;
    for (const Node* cast : group) weights.push_back(r.Map(cast->inputs[0]));
    const std::vector<Val> all = r.b().Ops(
        kCastTogether, weights, {{"to", node.attrs.String("to")}, {"num_outputs", static_cast<int64_t>(group.size())}});
    for (size_t i = 0; i < group.size(); ++i) r.Set(group[i]->outputs[0], all[i]);
    return std::vector<Val>(1);  // all results are set already
  };
  return Rewrite(graph, join, nullptr, values);
}

namespace {

absl::StatusOr<std::vector<Type>> InferSum(const TypeContext& c) {
  for (size_t i = 0; i < c.inputs.size(); ++i) RETURN_IF_ERROR(RequireFloat(c, i));
  return std::vector<Type>{{DType::kFloat64, {}}};
}

double CountFlops(std::span<const Type* const> in, std::span<const Type>, const Attrs&) {
  double flops = 0;
  for (const Type* type : in) flops += 2 * static_cast<double>(type->elements());
  return flops;
}

bool IsSum(const Graph& graph, const Node& node) {
  return node.op == "Add" && graph.type(node.outputs[0]) == Type{DType::kFloat64, {}};
}

struct Terms {
  std::vector<ValueId> squared, others;
};

// Returns the terms of a tree of sums whose inner sums have no other users.
Terms FindTerms(const Pattern& pattern, const Node& root) {
  Terms terms;
  std::vector<const Node*> sums = {&root};
  while (!sums.empty()) {
    const Node& sum = *sums.back();
    sums.pop_back();
    for (ValueId v : sum.inputs) {
      const Node* producer = pattern.HasOneUse(v) && !pattern.IsOutput(v) ? pattern.graph().producer(v) : nullptr;
      if (producer != nullptr && IsSum(pattern.graph(), *producer)) {
        sums.push_back(producer);
      } else if (producer != nullptr && producer->op == "SquaredNorm") {
        terms.squared.push_back(producer->inputs[0]);
      } else if (pattern.Splat(v) != 0) {
        terms.others.push_back(v);
      }
    }
  }
  return terms;
}

}  // namespace

void RegisterSumOfSquares() {
  static const auto* rows = new std::vector<OpRow>{{.name = kSumOfSquares,
                                                    .inputs = {1, Arity::kMany},
                                                    .infer = InferSum,
                                                    .precision = Precision::kFloat32,
                                                    .flops = CountFlops}};
  RegisterOps(*rows);
}

absl::StatusOr<Graph> FuseSumsOfSquares(const Graph& graph) {
  RegisterSumOfSquares();
  const Pattern pattern(graph);
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (!IsSum(graph, node)) return std::nullopt;
    const Node* user = pattern.SoleUser(node.outputs[0], "Add");
    if (user != nullptr && IsSum(graph, *user)) return std::nullopt;  // part of a larger sum
    const Terms terms = FindTerms(pattern, node);
    if (terms.squared.size() < 2) return std::nullopt;
    std::vector<Val> operands;
    for (ValueId v : terms.squared) operands.push_back(r.Map(v));
    Val sum = r.b().Op(kSumOfSquares, operands);
    for (ValueId v : terms.others) sum = sum + r.Map(v);
    return std::vector<Val>{sum};
  });
}

}  // namespace onnxtrain::aten
