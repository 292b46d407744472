#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {
namespace {

Val Flat(Val v) { return Reshape(v, {v.dim(0), v.type().elements() / v.dim(0)}); }

// Imports m/‖w‖ for each output of W + B·A, in the shape of m, from m, Σw² of W as the sum of the rows of a matrix, A,
// B and A·Wᵀ (of a convolution: W). As ‖w + Aᵀ·b‖² = ‖w‖² + b·(2·A·w + A·Aᵀ·b), the sum is not formed.
// The lengths have no gradient (Liu et al., arXiv:2402.09353, section 4.3). Outputs whose sum is zero have no
// direction; their factor is 1.
ImportOr ImportMagnitudeFactor(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 5));
  for (const size_t i : {1, 2, 3, 4}) {
    if (c.in(i).rank() < 2 || c.in(i).type().elements() == 0)
      return Invalid("input ", i, " should be a matrix, got ", ToString(c.in(i).type()));
  }
  const Val m = c.in(0), squares = ReduceSum(c.in(1), {0}, false), a = Flat(c.in(2)), b = Flat(c.in(3));
  const bool conv = c.in(2).rank() > 2;
  const Val aw = conv ? MatMul(a, Flat(c.in(4)), false, true) : c.in(4);
  const Val bt = Transpose(b, {1, 0}), own = MatMul(MatMul(a, a, false, true), bt);
  const Val added = ReduceSum(bt * (aw * 2.0 + own), {0}, false);
  const Val length = Reshape(StraightThrough(Sqrt(Binary("Max", squares + added, Number(squares, 0)))), m.shape());
  const Val one = Expand(Number(m, 1), m.shape()), is_zero = Equal(length, 0.0);
  return One(Where(is_zero, one, m / Where(is_zero, one, length)));
}

}  // namespace

std::span<const OnnxOp> AdapterImports() {
  static constexpr OnnxOp ops[] = {{kRowDomain, kMagnitudeFactor, 5, 5, ImportMagnitudeFactor}};
  return ops;
}

}  // namespace onnxtrain
