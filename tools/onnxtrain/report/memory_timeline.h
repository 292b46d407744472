// Plots the memory of a step: the live tensors of a program that ran (MemoryTimeline), or of any recomputation plan
// (MemoryPlot).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "optim/memory/cost_model.h"

namespace onnxtrain::cli {

// Areas of a plot, stacked on each other.
struct StackedAreas {
  size_t columns = 0, layers = 0;
  std::function<double(size_t column, size_t layer)> height;  // layer 0 is the lowest
  std::function<double(size_t border)> x;                     // column c spans the borders c and c + 1
  std::function<double(double height)> y;
};

// Returns the `points` attribute of an SVG polygon for each layer.
std::vector<std::string> StackOutlines(const StackedAreas& areas);

enum class TensorKind : uint8_t {
  kSaved,     // computed in the forward pass, read in the backward pass
  kForward,   // computed and read in the forward pass
  kBackward,  // computed in the backward pass: gradients and recomputed activations
  kWorkspace  // scratch memory of one node
};
inline constexpr size_t kTensorKinds = 4;

struct LiveTensor {
  std::string name;  // name of the value in the model, or of its producer
  std::string op;    // operator of the producer
  std::string type;
  TensorKind kind = TensorKind::kForward;
  int64_t bytes = 0;
  int32_t first = 0, last = 0;  // positions of the producer and of the last user
};

struct MemoryTimeline {
  std::vector<std::array<int64_t, kTensorKinds>> live;  // bytes, by position
  int32_t backward = 0;                                 // the first position of the backward pass
  int32_t peak = 0;                                     // the position with the most live bytes
  int64_t arena = 0;                                    // bytes
  std::vector<LiveTensor> at_peak;                      // the largest first
};

// Returns nullopt if the backend has no memory plan, or one too long to trace quickly.
std::optional<MemoryTimeline> TraceMemory(const Program& program);

// Returns HTML: a plot, and a table of the tensors that are live at the peak.
std::string MemoryTimelineHtml(const MemoryTimeline& timeline);

// Returns an SVG of live memory over the nodes of a step: stacked areas by kind, with lines at the size of the planned
// arena and at the start of the backward pass.
std::string MemoryPlot(const std::string& title, const RecomputeCostModel& model, const RecomputeSchedule& recomputed,
                       size_t arena);

}  // namespace onnxtrain::cli
