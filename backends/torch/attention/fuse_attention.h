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

// What a choice of kernels depends on.
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

// Logs that a kernel computes something else and is not used. Here, as glog's header meets none of ATen's.
void WarnOfWrongKernel(std::string_view kernel, const AttentionProblem& problem);
// Logs that no kernel is used. `errors`: of those that were tried.
void WarnOfPlainAttention(std::string_view errors, const AttentionProblem& problem);

// Returns nullopt where no fused kernel computes it: the node is left as it is.
using ChooseAttention = std::function<std::optional<AttentionChoice>(const AttentionProblem&)>;

// Is it an attention that FuseAttention asks `choose` for? Not with dropout, a cap, no elements, or more than two batch
// axes.
bool IsFusableAttention(const Graph& graph, const Node& node);

// A constant mask that hides exactly the later keys becomes the attribute `causal`. A gradient reads what the forward
// node over the same operands saved; where there is none, one is added.
absl::StatusOr<Graph> FuseAttention(const Graph& graph, const ChooseAttention& choose);

// Returns the entry with the shortest forward and backward pass over operands of these types. Entries that do not take
// them (SupportsAttention), that throw, or whose results for the first sample differ from those of plain products and
// softmax take no part. nullopt: none is left.
std::optional<AttentionChoice> RaceAttention(const AttentionProblem& problem, c10::Device device,
                                             std::span<const AttentionEntry> entries);

// Races once per problem and device in a process. Leaves half precision on a CPU alone.
ChooseAttention MakeAttentionChooser(c10::Device device);

}  // namespace onnxtrain::aten
