// cpu.Attention and cpu.AttentionGrad: attention over heads that lie where the projections left them, not where Attention wants
// them: the transposes around it become strides.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "backends/cpu/kernel.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

std::vector<OpRow> AttentionRows();

// Is the node an Attention or AttentionGrad that AbsorbHeads takes: of float32, or of bf16 where the processor multiplies it?
bool TakesHeads(const Graph& graph, const Node& node);

// These, with the transposes that they read and that read them. Leaves dead nodes behind.
absl::StatusOr<Graph> AbsorbHeads(const Graph& graph);

// An operand in the axes of Attention (batch…, rows, columns), wherever its elements are.
struct StridedType {
  Shape shape, strides;
};

// The inputs, then the outputs, of a cpu.Attention or cpu.AttentionGrad node.
std::vector<StridedType> HeadOperands(const KernelContext& c);

}  // namespace onnxtrain::cpu
