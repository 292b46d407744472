// Matches normalizations along axes: LayerNorm (Ba et al., 2016), RmsNorm (Zhang and Sennrich, 2019), Softmax,
// LogSoftmax. Proposes every region of arithmetic operators and reductions with one leaf; the proof decides.
#include <algorithm>

#include "frontend/ops/row.h"
#include "frontend/passes/match.h"

namespace onnxtrain {
namespace {

bool IsPartOfNorm(const Node& node) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && (row->arithmetic || row->reduction);
}

// Returns the axes that all nodes of this operator in the region reduce with keepdims; empty if they differ.
std::vector<int64_t> ReducedAxes(const MatchedRegion& region, std::string_view op) {
  std::optional<std::vector<int64_t>> axes;
  for (const Node* node : region.nodes()) {
    if (node->op != op) continue;
    std::vector<int64_t> these = node->attrs.Ints("axes");
    std::ranges::sort(these);
    if (node->attrs.Int("keepdims", 1) == 0 || (axes.has_value() && *axes != these)) return {};
    axes = std::move(these);
  }
  return axes.value_or(std::vector<int64_t>());
}

// Returns the constants that the region adds, which are the candidates for epsilon.
std::set<double> Epsilons(const MatchedRegion& region) {
  std::set<double> found;
  for (const Node* node : region.nodes()) {
    if (node->op != "Add") continue;
    for (ValueId v : node->inputs) {
      if (const auto c = region.pattern().Splat(v); c.has_value() && *c >= 0 && *c < 0.1) found.insert(*c);
    }
  }
  if (found.empty()) found.insert(0);
  return found;
}

Shape WithoutLeadingOnes(const Shape& shape, size_t rank) {
  size_t lead = 0;
  while (shape.size() - lead > rank && shape[lead] == 1) ++lead;
  return Shape(shape.begin() + lead, shape.end());
}

// A normalization of x over its axes from `axis` on, whose extents are `shape`.
struct Normalized {
  int64_t axis;
  Shape shape;
  std::vector<Match::Leaf> leaves;  // x and the weights
};

// Matches a region with exactly `means` ReduceMean nodes, all over the same last axes of its leaf, and at most
// `max_weights` weights with the shape of these axes.
std::optional<Normalized> NormalizedBy(const MatchedRegion& region, int means, size_t max_weights) {
  const Graph& graph = region.pattern().graph();
  const ValueId x = *region.only_leaf();
  const Type& type = graph.type(x);
  const std::vector<int64_t> axes = ReducedAxes(region, "ReduceMean");
  if (region.Count("ReduceMean") != means || axes.empty() || region.weights().size() > max_weights) return {};
  if (type != graph.type(region.root())) return {};
  const int64_t axis = axes[0];
  if (axis + std::ssize(axes) != type.rank() || axes.back() != type.rank() - 1) return {};
  // Leading axes only repeat the computation, so a few rows suffice for the proof.
  const Shape shape(type.shape.begin() + axis, type.shape.end());
  Shape small(axis, 1);
  if (axis > 0) small.back() = 4;
  small.insert(small.end(), shape.begin(), shape.end());
  Normalized n = {axis, shape, {{x, small}}};
  for (ValueId w : region.weights()) {
    const Shape& weight = graph.type(w).shape;
    if (WithoutLeadingOnes(weight, shape.size()) != shape) return {};
    n.leaves.push_back({w, weight});
  }
  return n;
}

// Indices of scale and bias among the leaves after x; -1 if absent.
struct Affine {
  int scale, bias;
};

Val LayerNorm(Builder& b, std::span<const Val> leaves, int64_t axis, double epsilon, Affine roles) {
  const Val x = leaves[0];
  const Shape shape(x.shape().begin() + axis, x.shape().end());
  auto leaf = [&](int i) { return i < 0 ? Val() : Reshape(leaves[i], shape); };
  const Val scale = roles.scale < 0 ? Expand(b.Scalar(x.dtype(), 1), shape) : leaf(roles.scale);
  return b.Op("LayerNorm", {x, scale, leaf(roles.bias)}, {{"axis", axis}, {"epsilon", epsilon}});
}

std::vector<Affine> PossibleRoles(size_t weights) {
  if (weights == 0) return {{-1, -1}};
  if (weights == 1) return {{1, -1}, {-1, 1}};
  return {{1, 2}, {2, 1}};
}

Proposals ProposeLayerNorm(const MatchedRegion& region) {
  const auto n = NormalizedBy(region, 2, 2);
  if (!n.has_value()) return {};
  Proposals proposals;
  for (double epsilon : Epsilons(region)) {
    for (Affine roles : PossibleRoles(region.weights().size())) {
      auto form = [=, axis = n->axis](Builder& b, std::span<const Val> v) {
        return LayerNorm(b, v, axis, epsilon, roles);
      };
      proposals.push_back({region.root(), "LayerNorm", n->leaves, form, region.covers()});
    }
  }
  return proposals;
}

Proposals ProposeRmsNorm(const MatchedRegion& region) {
  const auto n = NormalizedBy(region, 1, 1);
  if (!n.has_value()) return {};
  Proposals proposals;
  for (double epsilon : Epsilons(region)) {
    auto form = [=, axis = n->axis, normalized = n->shape](Builder& b, std::span<const Val> v) {
      const Val scale = v.size() > 1 ? Reshape(v[1], normalized) : Expand(b.Scalar(v[0].dtype(), 1), normalized);
      return b.Op("RmsNorm", {v[0], scale}, {{"axis", axis}, {"epsilon", epsilon}});
    };
    proposals.push_back({region.root(), "RmsNorm", n->leaves, form, region.covers()});
  }
  return proposals;
}

// Returns true for the nodes by which ReduceLogSumExp guards its maximum against infinity.
bool GuardsMaximum(const Node& node) { return node.op == "IsInf" || node.op == "Where"; }

bool IsPartOfSoftmax(const Node& node) { return IsPartOfNorm(node) || GuardsMaximum(node) || node.op == "Softmax"; }

Proposals ProposeSoftmax(const MatchedRegion& region) {
  const Graph& graph = region.pattern().graph();
  const ValueId x = *region.only_leaf();
  const Type& type = graph.type(x);
  if (type != graph.type(region.root()) || !region.weights().empty() || region.nodes().size() < 2) return {};
  std::vector<int64_t> axes = ReducedAxes(region, "ReduceSum");
  if (region.Count("Softmax") == 1) axes = {region.nodes().back()->attrs.Int("axis")};
  const bool log = region.Count("Log") > 0 && region.nodes().front()->op != "Exp";
  if (axes.size() != 1 || region.Count("Exp") + region.Count("Softmax") == 0) return {};
  const std::string_view op = log ? "LogSoftmax" : "Softmax";
  Shape small(type.rank(), 2);
  small[axes[0]] = 5;
  auto form = [op, axis = axes[0]](Builder& b, std::span<const Val> v) { return b.Op(op, {v[0]}, {{"axis", axis}}); };
  return {{region.root(), op, {{x, small}}, form, region.covers()}};
}

}  // namespace

std::span<const RegionPattern> NormPatterns() {
  static constexpr RegionPattern kPatterns[] = {
      {IsPartOfNorm, 16, ProposeLayerNorm}, {IsPartOfNorm, 10, ProposeRmsNorm}, {IsPartOfSoftmax, 12, ProposeSoftmax}};
  return kPatterns;
}

}  // namespace onnxtrain
