// Reverse-mode differentiation, which appends gradient nodes to the graph.
//
// Knows no operator: visits nodes in reverse order and applies the gradient formula of each row, or differentiates the
// row's decomposition. Adds the contributions to a gradient in the order of the visits, which is deterministic.
#pragma once

#include <map>
#include <span>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// A value with known gradient: `gradient`, of the same type as `value`, or ones if it is kNoValue.
struct Seed {
  ValueId value;
  ValueId gradient = kNoValue;
};

// Appends to *graph the gradients of Σ seed.gradient·seed.value with respect to the values in `wrt`. Returns the
// gradients by value, without an entry for a value on which no seeded value depends differentiably. Fails if operators
// without a gradient are on the path, and names all of them.
absl::StatusOr<std::map<ValueId, ValueId>> Differentiate(Graph* graph, std::span<const Seed> seeds,
                                                         std::span<const ValueId> wrt);

// Differentiates one value, the loss, whose gradient is `seed`.
absl::StatusOr<std::map<ValueId, ValueId>> Differentiate(Graph* graph, ValueId loss, std::span<const ValueId> wrt,
                                                         ValueId seed = kNoValue);

}  // namespace onnxtrain
