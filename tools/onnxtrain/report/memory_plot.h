// Plots live memory over the nodes of a step.
#pragma once

#include <string>

#include "optim/memory/cost_model.h"

namespace onnxtrain::cli {

// SVG: stacked areas by kind, a line at the planned arena, the start of the backward pass.
std::string MemoryPlot(const std::string& title, const RecomputeCostModel& model, const RecomputeSchedule& recomputed,
                       size_t arena);

}  // namespace onnxtrain::cli
