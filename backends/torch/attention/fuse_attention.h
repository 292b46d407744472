// Chooses attention kernels by their time on the device, and replaces Attention and AttentionGrad by torch.Attention
// and torch.AttentionGrad, which share the saved logarithms.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include <c10/core/Device.h>
#include "absl/status/statusor.h"
#include "backends/torch/attention/entry_points.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

// The properties of an attention that the choice of its kernel depends on.
struct AttentionProblem {
  Type q, k, v;
  std::optional<Type> mask;
  bool causal = false;
  bool may_hide_all = false;
  double scale = 1;

  std::string Key() const;  // equal for equal problems
};

struct AttentionChoice {
  std::string kernel;
  Shape lse_shape;
};

// Logs that a kernel is not used because its results are wrong. Declared here because glog's header conflicts with
// those of ATen.
void WarnOfWrongKernel(std::string_view kernel, const AttentionProblem& problem);
// Logs that no kernel is used. `errors` are those of the kernels that were tried.
void WarnOfPlainAttention(std::string_view errors, const AttentionProblem& problem);

// Returns the kernel for a problem, or nullopt to leave the node unfused.
using ChooseAttention = std::function<std::optional<AttentionChoice>(const AttentionProblem&)>;

// Returns true for an attention that FuseAttention passes to `choose`: one without dropout and cap, with elements and
// at most two batch axes.
bool IsFusableAttention(const Graph& graph, const Node& node);

// Replaces Attention and AttentionGrad by the chosen kernels. A constant mask that hides exactly the later keys becomes
// the attribute `causal`. A gradient reads lse of the forward node over the same operands, which is added if missing.
absl::StatusOr<Graph> FuseAttention(const Graph& graph, const ChooseAttention& choose);

// Measures the entries and returns the one with the fastest forward and backward pass over operands of these types.
// Excludes entries that do not support them (SupportsAttention), that throw, or whose results for the first head differ
// from those of plain matrix products and softmax. Returns nullopt if none is left.
std::optional<AttentionChoice> RaceAttention(const AttentionProblem& problem, c10::Device device,
                                             std::span<const AttentionEntry> entries);

// Returns a chooser that calls RaceAttention once per problem in a process. It chooses no kernel for half precision on
// a CPU.
ChooseAttention MakeAttentionChooser(c10::Device device);

}  // namespace onnxtrain::aten
