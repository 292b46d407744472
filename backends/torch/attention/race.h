// Chooses attention kernels by their time on the device.
#pragma once

#include <optional>
#include <span>

#include <c10/core/Device.h>

#include "backends/torch/attention/entry_points.h"
#include "backends/torch/attention/fuse_attention.h"

namespace onnxtrain::aten {

// Returns the entry with the shortest forward and backward pass over operands of these types. Entries that do not take
// them (SupportsAttention), that throw, or whose results for the first sample differ from those of plain products and
// softmax take no part. nullopt: none is left.
std::optional<AttentionChoice> RaceAttention(const AttentionProblem& problem, c10::Device device,
                                             std::span<const AttentionEntry> entries);

// Races once per problem and device in a process. Leaves half precision on a CPU alone.
ChooseAttention MakeAttentionChooser(c10::Device device);

}  // namespace onnxtrain::aten
