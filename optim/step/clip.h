// Adaptive clipping of single gradients. Clipping by the global norm is in training_graph.cc, which computes the norm.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "frontend/ops/builder.h"

namespace onnxtrain {

// Adaptive gradient clipping (Brock et al., High-Performance Large-Scale Image Recognition Without Normalization, 2021;
// as timm's agc): clips the norm of each output unit's gradient to `ratio` · max(‖weights of the unit‖, 1e-3). A weight
// of rank ≥ 2 has one unit per index of `axis`; any other weight is one unit.
Val ClipAdaptively(Val gradient, Val weight, double ratio, int64_t axis);

// Returns the output axis of each weight by name: 1 for a matrix that is multiplied untransposed; absent (0) for
// convolutions, embeddings and matrices that are multiplied transposed.
std::map<std::string, int64_t> OutputAxes(const Graph& graph);

}  // namespace onnxtrain
