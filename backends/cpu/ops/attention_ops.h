// cpu.Attention and cpu.AttentionGrad: attention over heads in the layout of the projections. Strides replace the
// transposes around the canonical operators (lower/fold_head_transposes.h).
#pragma once

#include <string_view>
#include <vector>

#include "backends/cpu/runtime/kernel.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

std::vector<OpRow> AttentionRows();

// The operators have the inputs of Attention and AttentionGrad. Returns which one is the mask; it has no permutation.
size_t MaskIndex(std::string_view op);

// An operand in the axes of Attention (batch…, rows, columns).
struct StridedType {
  Shape shape, strides;
};

// The inputs, then the outputs, of a cpu.Attention or cpu.AttentionGrad node.
std::vector<StridedType> GetHeadOperands(const KernelContext& c);

}  // namespace onnxtrain::cpu
