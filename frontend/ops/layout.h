// Layouts of operands: which share one, and what a node computes in the order of memory.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Is operand i among those that the bits of LayoutOperands name? Bit 31 stands for all from 31 on.
inline bool HasBit(uint32_t bits, size_t i) { return (bits >> std::min<size_t>(i, 31) & 1) != 0; }

// The operands of a node that share a layout: those that the row names and that have full rank, the largest of them.
LayoutOperands FindLayoutOperands(const OpRow& row, std::span<const Type* const> inputs,
                                  std::span<const Type* const> outputs);
LayoutOperands FindLayoutOperands(const Graph& graph, const Node& node);

// The rank of the operands that these name.
int FindLayoutRank(const Graph& graph, const Node& node, const LayoutOperands& operands);

// The axes of [N,C,…] in the order [N,…,C], and back.
std::vector<int64_t> NchwToNhwcPerm(int rank);
std::vector<int64_t> NhwcToNchwPerm(int rank);

// Gives the outputs, whose types the row inferred from row-major inputs, the layout of the inputs. Fails where inputs
// that should share a layout do not, or where the node has no equal over permuted axes.
absl::Status InferLayouts(const OpRow& row, std::span<const Type* const> inputs, const Attrs& attrs,
                          std::vector<Type>* outputs);

// The attributes of an operator that computes in any order, for operands [N,C,…] of `rank` that are stored [N,…,C].
Attrs ToPhysicalAttrs(const OpRow& row, const Attrs& attrs, int rank);

// A node of an operator that computes in any order, over the row-major tensors that have the same bytes.
struct PhysicalNode {
  Attrs attrs;
  std::vector<Type> inputs, outputs;  // absent inputs are scalars
};
PhysicalNode ToPhysical(const Graph& graph, const Node& node);

// Is one of the operands stored channels last?
bool IsChannelsLast(const Graph& graph, const Node& node);

// Can the reduction with these attributes be made in the order of channels last? Without the reduced axes, the others
// must stay in their order.
bool KeepsAxisOrder(const OpRow& row, const Attrs& attrs, int rank);

}  // namespace onnxtrain
