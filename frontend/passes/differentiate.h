// Reverse-mode differentiation of the graph itself.
//
// The engine knows no operator: it walks the nodes backwards and asks each row for its formula (or takes the formula of
// the row's decomposition). Contributions to one value are added in the order in which they are met, which is fixed.
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
// differentiably gets no entry. Nodes whose row offers no gradient and that stand on the way are an error; all of them
// are named.
absl::StatusOr<std::map<ValueId, ValueId>> Differentiate(Graph* graph, std::span<const Seed> seeds,
                                                         std::span<const ValueId> wrt);

// The same for one value, the loss.
absl::StatusOr<std::map<ValueId, ValueId>> Differentiate(Graph* graph, ValueId loss, std::span<const ValueId> wrt,
                                                         ValueId seed = kNoValue);

}  // namespace onnxtrain
