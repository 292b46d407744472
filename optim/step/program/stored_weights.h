// Weights that are stored in bf16, without float32 masters, while graphs are built for float32.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "optim/step/state.h"

namespace onnxtrain {

// Returns true if a graph that expects `type` can read a tensor of type `stored` as such a weight.
inline bool IsStoredInBf16(const Type& stored, const Type& type) {
  return stored.dtype == DType::kBFloat16 && type.dtype == DType::kFloat32 && stored.shape == type.shape;
}

// Casts the float32 inputs whose regions are bf16, and rounds outputs that go `into` them stochastically, so that the
// expected value of a stored weight is the exact one and small updates are not lost. The random numbers depend on
// `seed`, the number of applied updates (device_scalar::kApplied) and the name of the weight. `region` returns the
// region of an input, or null. Fails if a graph without that counter updates such a weight.
absl::StatusOr<Graph> AdaptToStoredWeights(const Graph& graph,
                                           const std::function<const Region*(const std::string&)>& region,
                                           uint64_t seed);

// Gives each reader of a widened weight a copy of the cast right before it: a cast takes less time than its result
// takes memory from the forward to the backward pass.
absl::StatusOr<Graph> WidenWhereRead(const Graph& legal);

}  // namespace onnxtrain
