// Layouts of operands: finds the operands that share a layout, and expresses a node in memory order.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Returns true if the bit mask of LayoutOperands contains operand i. Bit 31 stands for operands 31 and later.
inline bool HasBit(uint32_t bits, size_t i) { return (bits >> std::min<size_t>(i, 31) & 1) != 0; }

// Returns the operands of a node that share a layout: those in the bit masks of the row that have the largest rank
// among them.
LayoutOperands FindLayoutOperands(const OpRow& row, std::span<const Type* const> inputs,
                                  std::span<const Type* const> outputs);
LayoutOperands FindLayoutOperands(const Graph& graph, const Node& node);

// Returns the rank of these operands.
int FindLayoutRank(const Graph& graph, const Node& node, const LayoutOperands& operands);

// Return the permutation from [N,C,…] to [N,…,C], and its inverse.
std::vector<int64_t> NchwToNhwcPerm(int rank);
std::vector<int64_t> NhwcToNchwPerm(int rank);

// Sets the layouts of `outputs`, which the row has inferred as for row-major inputs, to that of the inputs. Fails if
// inputs that should share a layout do not, or if the operator cannot be expressed over permuted axes.
absl::Status InferLayouts(const OpRow& row, std::span<const Type* const> inputs, const Attrs& attrs,
                          std::vector<Type>* outputs);

// Converts the attributes of an `any_order` operator on [N,C,…] to those for the memory order [N,…,C].
Attrs ToPhysicalAttrs(const OpRow& row, const Attrs& attrs, int rank);

// A node of an `any_order` operator, expressed on row-major tensors with the same bytes.
struct PhysicalNode {
  Attrs attrs;
  std::vector<Type> inputs, outputs;  // absent inputs are scalars
};
PhysicalNode ToPhysical(const Graph& graph, const Node& node);

// Returns true if an operand is stored channels last.
bool IsChannelsLast(const Graph& graph, const Node& node);

// Returns true if the reduction can run on channels-last operands, that is, if the remaining axes keep their order.
bool KeepsAxisOrder(const OpRow& row, const Attrs& attrs, int rank);

}  // namespace onnxtrain
