// torch.NhwcConv, torch.NhwcMaxPool …: canonical operators over activations that are stored channels last. Types are
// row-major, [N,…,C] for [N,C,…], so that passes and memory planning need to know nothing of layouts; kernels see
// [N,C,…] with the strides of channels last. Attributes are those of the canonical operator.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

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

}  // namespace onnxtrain::aten
