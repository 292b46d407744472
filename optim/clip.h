// Clipping of single gradients. By the global norm: training_graph.cc, which has it anyway.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "frontend/ops/builder.h"

namespace onnxtrain {

// Adaptive gradient clipping (Brock et al., High-Performance Large-Scale Image Recognition Without Normalization, 2021; as timm's
// agc): the gradient of an output unit is at most `ratio` times as long as its weights, which count as at least 1e-3 long.
// A weight of rank 2 and more has a unit for each index of `axis`; any other is one unit.
Val ClipToWeights(Val gradient, Val weight, double ratio, int64_t axis);

// Which axis of each weight counts output units, by name: 1 for a matrix that is multiplied as it is, absent (0) for everything
// else: convolutions, embeddings, matrices that are multiplied transposed.
std::map<std::string, int64_t> OutputAxes(const Graph& graph);

}  // namespace onnxtrain
