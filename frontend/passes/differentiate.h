// Reverse-mode differentiation of the graph itself.
//
// The engine knows no operator: it visits nodes in reverse order and applies the gradient formula of each row, or that
// of the row's decomposition. It adds contributions to a value in the order of the visit, which is fixed.
#pragma once

#include <map>
#include <span>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// A value whose gradient is known: `gradient` of the same type, or ones where it is kNoValue.
struct Seed {
  ValueId value;
  ValueId gradient = kNoValue;
};

// Appends to *graph the gradient of the seeded values (of any shape; their sum, weighted with the seeds' gradients)
// with respect to each value of `wrt`. Returns the gradients by value; a value that the seeded ones do not depend on
// differentiably gets no entry. Fails, with all names, if
// operators without a gradient are on the path.
absl::StatusOr<std::map<ValueId, ValueId>> Differentiate(Graph* graph, std::span<const Seed> seeds,
                                                         std::span<const ValueId> wrt);

// The same for one value, the loss.
absl::StatusOr<std::map<ValueId, ValueId>> Differentiate(Graph* graph, ValueId loss, std::span<const ValueId> wrt,
                                                         ValueId seed = kNoValue);

}  // namespace onnxtrain
