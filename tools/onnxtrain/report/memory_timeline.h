// Which tensors are in memory while a step runs, by the plan of its largest program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace onnxtrain::cli {

// Outlines of stacked areas, as SVG's polygons take them.

struct StackedAreas {
  size_t columns = 0, layers = 0;
  std::function<double(size_t column, size_t layer)> height;  // layer 0 is the lowest
  std::function<double(size_t border)> x;                     // column c is between the borders c and c + 1
  std::function<double(double height)> y;
};

// Returns the `points` of a polygon for each layer.
std::vector<std::string> StackOutlines(const StackedAreas& areas);

enum class TensorKind : uint8_t {
  kSaved,     // made in the forward pass, read in the backward pass
  kForward,   // made and read in the forward pass
  kBackward,  // made in the backward pass: gradients, and what is recomputed
  kWorkspace  // of one node
};
inline constexpr size_t kTensorKinds = 4;

struct LiveTensor {
  std::string name;  // of the value in the model, or of the node that makes it
  std::string op;    // of that node
  std::string type;
  TensorKind kind = TensorKind::kForward;
  int64_t bytes = 0;
  int32_t first = 0, last = 0;  // positions of the nodes that make it and read it last
};

struct MemoryTimeline {
  std::vector<std::array<int64_t, kTensorKinds>> live;  // bytes, by position
  int32_t backward = 0;                                 // the first position of the backward pass
  int32_t peak = 0;                                     // the position with most live bytes
  int64_t arena = 0;                                    // bytes
  std::vector<LiveTensor> at_peak;                      // the largest first
};

// Nullopt where the backend has no plan, or so long a one that following its values would take long.
std::optional<MemoryTimeline> TraceMemory(const Program& program);

// A plot, and a table of the tensors that are live at the peak.
std::string MemoryTimelineHtml(const MemoryTimeline& timeline);

}  // namespace onnxtrain::cli
