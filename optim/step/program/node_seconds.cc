#include "optim/step/program/node_seconds.h"

#include "frontend/ops/cost.h"

namespace onnxtrain {

// FLOP/s of products and of other operators, and bytes/s.
constexpr double kProducts = 300e9, kOthers = 20e9, kBytes = 25e9;

double NodeSeconds(const Graph& graph, const Node& node) {
  return NodeFlops(graph, node) / (IsProduct(node) ? kProducts : kOthers) + MoveSeconds(graph, node);
}

double MoveSeconds(const Graph& graph, const Node& node) { return NodeBytes(graph, node) / kBytes; }

}  // namespace onnxtrain
