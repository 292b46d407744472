#include "optim/step/program/optimize.h"

#include <algorithm>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/cost.h"
#include "frontend/ops/row.h"
#include "frontend/passes/chunk_cross_entropy.h"
#include "frontend/passes/collectives.h"
#include "frontend/passes/hoist.h"
#include "frontend/passes/mixed_precision.h"
#include "frontend/passes/pipeline.h"

namespace onnxtrain {
namespace {

// Largest cost of an unhoisted value as a share of the time of its users, by the cost model: that of packing for a
// product of 720 rows in float32, or of 540 in bf16. Below it, the product gains as much by reading the packed weight
// from the caches (four micro-batches of 1024 rows, an encoder in bf16: equal times).
constexpr double kShare = 1.0 / 16;

// Weights that are stored in few bits to save memory are not kept in more bits besides.
constexpr double kWidened = 1.5;

class HoistPolicy {
 public:
  explicit HoistPolicy(const Graph& graph)
      : graph_(graph), users_(ComputeUsers(graph)), frozen_(FindFrozenValues(graph)), costs_(graph.nodes().size()) {
    for (size_t n = 0; n < costs_.size(); ++n) CountInputs(graph, n);
    for (size_t n = costs_.size(); n-- > 0;) CountReaders(graph, n);
  }

  bool IsWorth(ValueId v) const {
    const Node* node = graph_.producer(v);
    if (node == nullptr || !FindOp(node->op)->derive) return false;
    if (frozen_[v]) return true;
    const Costs& c = costs_[graph_.value(v).node];
    const Type& type = graph_.type(v);
    const auto unpadded = static_cast<double>(type.elements()) * static_cast<double>(DTypeSize(type.dtype));
    const bool widened = unpadded > kWidened * static_cast<double>(c.source);
    return !widened && (users_[v].size() > 1 || c.make > kShare * c.read);
  }

 private:
  struct Costs {
    size_t source = 0;  // bytes of the weights that it is computed from
    double make = 0;    // seconds, with everything that it is computed from
    double read = 0;    // seconds of its users, through casts, transposes and views
  };

  void CountInputs(const Graph& graph, size_t n) {
    Costs& c = costs_[n];
    c.make = MoveSeconds(graph, graph.nodes()[n]);
    for (ValueId v : graph.nodes()[n].inputs) {
      if (v == kNoValue) continue;
      const bool is_input = graph.IsInput(v);
      const Costs* of = is_input ? nullptr : &costs_[graph.value(v).node];
      c.make += is_input ? 0 : of->make;
      c.source += is_input ? graph.type(v).bytes() : of->source;
    }
  }

  void CountReaders(const Graph& graph, size_t n) {
    for (int32_t r : users_[graph.nodes()[n].outputs[0]]) {
      const OpRow* row = FindOp(graph.nodes()[r].op);
      costs_[n].read += NodeSeconds(graph, graph.nodes()[r]) + (row->derive || row->view ? costs_[r].read : 0);
    }
  }

  const Graph& graph_;
  const Users users_;               // by value
  const std::vector<bool> frozen_;  // by value
  std::vector<Costs> costs_;        // by node
};

}  // namespace

bool MayHoist(const Graph& legal) {
  const std::vector<bool> weight = FindWeightValues(legal);
  return std::ranges::any_of(legal.nodes(), [&](const Node& node) {
    return !node.outputs.empty() && weight[node.outputs[0]] && FindOp(node.op)->derive;
  });
}

std::function<bool(const Graph&, const Node&)> ShouldHoist(const FusedGraph& fused) {
  return [&values = fused.values, policy = HoistPolicy(fused.graph)](const Graph&, const Node& node) {
    const ValueId v = values[node.outputs[0]];
    return v != kNoValue && policy.IsWorth(v);
  };
}

absl::StatusOr<Graph> OptimizeProgram(Graph graph, DType compute) {
  ASSIGN_OR_RETURN(graph, CleanUp(std::move(graph)));
  if (HasCollectives(graph)) {
    const Pass order = {"order_collectives", OrderCollectives};
    ASSIGN_OR_RETURN(graph, RunPasses(std::move(graph), {&order, 1}));
  }
  if (HasLargeCrossEntropy(graph)) {
    const Pass chunk = {"chunk_cross_entropy", [](const Graph& g) { return ChunkCrossEntropy(g); }};
    ASSIGN_OR_RETURN(graph, RunPasses(std::move(graph), {&chunk, 1}));
    ASSIGN_OR_RETURN(graph, CleanUp(std::move(graph)));
  }
  if (compute == DType::kFloat32) return graph;
  const Pass mixed_precision = {"mixed_precision", [&](const Graph& g) { return MixedPrecision(g, compute); }};
  ASSIGN_OR_RETURN(graph, RunPasses(std::move(graph), {&mixed_precision, 1}));
  return CleanUp(std::move(graph));
}

// FLOP/s of products and of other operators, and bytes/s.
constexpr double kProducts = 300e9, kOthers = 20e9, kBytes = 25e9;

double NodeSeconds(const Graph& graph, const Node& node) {
  return NodeFlops(graph, node) / (IsProduct(node) ? kProducts : kOthers) + MoveSeconds(graph, node);
}

double MoveSeconds(const Graph& graph, const Node& node) { return MoveSeconds(NodeBytes(graph, node)); }

double MoveSeconds(double bytes) { return bytes / kBytes; }

}  // namespace onnxtrain
