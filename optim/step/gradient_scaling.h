// Adaptive clipping of single gradients, and dynamic loss scaling. Clipping by the global norm is in training_graph.cc.
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

// Options of dynamic loss scaling, by the rule of PyTorch's GradScaler. The loss is multiplied by S so that float16
// gradients do not underflow. An update with a non-finite gradient is skipped, and S shrinks.
struct LossScaleSpec {
  double initial = 65536;
  bool dynamic = true;  // false: S is constant
  double growth = 2, backoff = 0.5;
  int64_t interval = 2000;  // applied updates in a row before S grows
};

// S (float scalar) and the number of updates applied since S last changed (i64 scalar).
struct LossScale {
  Val scale, applied;
};

// Returns the state after an update; `finite` (bool scalar): the update was applied. S never grows beyond the largest
// finite float.
LossScale NextLossScale(const LossScaleSpec& spec, const LossScale& now, Val finite);

}  // namespace onnxtrain
