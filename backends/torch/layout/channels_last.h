// Stores activations channels last, [N,…,C], so that convolutions need not convert them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/graph/type.h"

namespace onnxtrain::aten {

struct ChannelsLastOp {
  std::string_view canonical, name;
  uint32_t inputs = 0, outputs = 0;  // bit masks of the [N,…,C] operands; others are row-major
};

std::span<const ChannelsLastOp> ChannelsLastOps();
const ChannelsLastOp* FindChannelsLastOp(std::string_view canonical);  // null if there is none
const ChannelsLastOp& GetChannelsLastOp(std::string_view name);        // `name` must be torch.Nhwc…

// Adds the rows to the table. Idempotent.
void RegisterChannelsLastOps();

// Returns true for a convolution over two or three spatial axes that runs on tensor cores, whose kernels are faster
// channels last: half precision, and float32 if its operands may be rounded to TF32.
bool WantsChannelsLast(const Graph& graph, const Node& node, bool tf32);

// Replaces convolutions that want it (WantsChannelsLast) by torch.NhwcConv …, and nodes between them by nodes over
// [N,…,C] if fewer bytes are then transposed. Graph inputs and outputs keep their shapes.
absl::StatusOr<Graph> AssignChannelsLast(const Graph& graph, bool tf32);

}  // namespace onnxtrain::aten
