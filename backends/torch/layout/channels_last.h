// Stores activations channels last, [N,…,C], where that spares convolutions the conversion.
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
  uint32_t inputs = 0, outputs = 0;  // bits of the operands [N,…,C]; all others are as in the canonical operator
};

std::span<const ChannelsLastOp> ChannelsLastOps();
const ChannelsLastOp* FindChannelsLastOp(std::string_view canonical);  // null where there is none
const ChannelsLastOp& GetChannelsLastOp(std::string_view name);        // of an operator of these

// Adds the rows to the table. Idempotent.
void RegisterChannelsLastOps();

// A convolution over two or three spatial axes whose kernels are faster channels last: those of tensor cores, so that
// float32 takes part where its factors may be rounded to TF32, and float64 never does.
bool WantsChannelsLast(const Graph& graph, const Node& node, bool tf32);

// Replaces such convolutions by torch.NhwcConv …, and computes what lies between them over [N,…,C] where that leaves
// fewer bytes to be transposed. Graph inputs and outputs keep their shapes.
absl::StatusOr<Graph> AssignChannelsLast(const Graph& graph, bool tf32);

}  // namespace onnxtrain::aten
