// The algebraic simplification rules of rows (OpRow::simplify), which passes/simplify.h applies.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// A node to simplify, with its inputs in the new graph, which are already simplified.
struct SimplifyContext {
  Builder& b;
  const Node& node;     // in the old graph
  std::vector<Val> in;  // invalid if absent
  const Type& out;      // type of output 0

  const Attrs& attrs() const { return node.attrs; }
  // Expands v to the type of output 0. Invalid if v does not broadcast to it.
  Val Fit(Val v) const;
  // Applies the operator of the node to other operands. Invalid if the row rejects them or infers another shape, since
  // some elementwise operators do not broadcast.
  Val Try(const std::vector<Val>& operands, const Shape& shape) const;
};

// Returns input i of the producer of v if that is an `op`, otherwise an invalid Val.
Val MatchInput(Val v, std::string_view op, size_t i = 0);
// Returns the attributes of the producer of v (none for a graph input), by value, since appending moves nodes.
Attrs ProducerAttrs(Val v);
// Returns the value of all elements if v is a constant with equal elements, or an Expand of one.
std::optional<double> FindSplat(const Graph& graph, ValueId v);
inline std::optional<double> FindSplat(Val v) { return v ? FindSplat(v.b().graph(), v.id()) : std::nullopt; }
bool IsSplat(Val v, double value);

// Returns the result of the first rule that applies.
template <SimplifyFn... kRules>
Val FirstOf(const SimplifyContext& s) {
  Val result;
  (void)((result = kRules(s), result.valid()) || ...);
  return result;
}

// Each function applies the rules of one operator in order. Defined in arithmetic.cc.
Val SimplifyAdd(const SimplifyContext& s);
Val SimplifyAnd(const SimplifyContext& s);
Val SimplifyCast(const SimplifyContext& s);
Val SimplifyDiv(const SimplifyContext& s);
Val SimplifyDropout(const SimplifyContext& s);
Val SimplifyMul(const SimplifyContext& s);
Val SimplifyNeg(const SimplifyContext& s);
Val SimplifyNot(const SimplifyContext& s);
Val SimplifyOr(const SimplifyContext& s);
Val SimplifyPow(const SimplifyContext& s);
Val SimplifyReciprocal(const SimplifyContext& s);
Val SimplifySqrt(const SimplifyContext& s);
Val SimplifySub(const SimplifyContext& s);
Val SimplifyWhere(const SimplifyContext& s);
Val SimplifyXor(const SimplifyContext& s);

// Defined in product.cc.
Val SimplifyGroupedMatMul(const SimplifyContext& s);
Val SimplifyMatMul(const SimplifyContext& s);

// Defined in shape.cc.
Val AddOfSliceGrads(const SimplifyContext& s);
Val SimplifyArg(const SimplifyContext& s);  // ArgMax, ArgMin
Val SimplifyAttention(const SimplifyContext& s);
Val SimplifyConcat(const SimplifyContext& s);
Val SimplifyExpand(const SimplifyContext& s);
Val SimplifyPad(const SimplifyContext& s);
Val SimplifyReduce(const SimplifyContext& s);
Val SimplifyReshape(const SimplifyContext& s);
Val SimplifySlice(const SimplifyContext& s);
Val SimplifySliceGrad(const SimplifyContext& s);
Val SimplifySplit(const SimplifyContext& s);
Val SimplifyTranspose(const SimplifyContext& s);

}  // namespace onnxtrain
