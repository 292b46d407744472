#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/einsum.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

Val Scaled(Val x, double factor) { return factor == 1 ? x : x * factor; }

// numpy's matmul: a vector on the left is a row, one on the right a column, and the added axis is dropped again.
ImportOr Product(Val a, Val b, bool trans_a, bool trans_b, double alpha) {
  if (a.rank() == 0 || b.rank() == 0) return Invalid("a product of ", ToString(a.type()), " and ", ToString(b.type()));
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a = Reshape(a, {1, a.dim(0)});
  if (column) b = Reshape(b, {b.dim(0), 1});
  // A transposed vector is still that vector.
  Val y = Scaled(MatMul(a, b, trans_a && !row, trans_b && !column), alpha);
  if (!y.valid() || !(row || column)) return One(y);
  Shape shape(y.shape().begin(), y.shape().end() - 2);
  if (!row) shape.push_back(y.dim(-2));
  if (!column) shape.push_back(y.dim(-1));
  return One(Reshape(y, std::move(shape)));
}

ImportOr ImportMatMul(ImportContext& c) { return Product(c.in(0), c.in(1), false, false, 1); }

// transBatch: [m, batch…, k] is stored where [batch…, m, k] is meant.
Val BatchFirst(Val x, bool transposed) {
  if (!transposed || x.rank() < 3) return x;
  std::vector<int64_t> perm(x.rank());
  std::iota(perm.begin(), perm.end(), 1);
  perm[x.rank() - 2] = 0;
  perm[x.rank() - 1] = x.rank() - 1;
  return Transpose(x, std::move(perm));
}

ImportOr ImportFusedMatMul(ImportContext& c) {
  const Attrs& attrs = c.attrs();
  const Val a = BatchFirst(c.in(0), attrs.Int("transBatchA")), b = BatchFirst(c.in(1), attrs.Int("transBatchB"));
  return Product(a, b, attrs.Int("transA"), attrs.Int("transB"), attrs.Float("alpha", 1.0));
}

// α·A′B′ + β·C.
ImportOr ImportGemm(ImportContext& c) {
  const Val a = c.in(0), b = c.in(1);
  if (a.rank() != 2 || b.rank() != 2) return Invalid("a Gemm of ", ToString(a.type()), " and ", ToString(b.type()));
  const Val y = Scaled(MatMul(a, b, c.attrs().Int("transA"), c.attrs().Int("transB")), c.attrs().Float("alpha", 1.0));
  if (!y.valid() || !c.has(2)) return One(y);
  const double beta = c.attrs().Float("beta", 1.0);
  const Val bias = c.in(2);
  if (BroadcastShapes(bias.shape(), y.shape()) != y.shape()) {
    return Invalid("C of type ", ToString(bias.type()), " does not broadcast to ", ToString(y.type()));
  }
  return One(beta == 0 ? y : y + Scaled(bias, beta));
}

ImportOr ImportEinsum(ImportContext& c) {
  ASSIGN_OR_RETURN(const Val y, Einsum(c.attrs().String("equation"), c.node().inputs));
  return One(y);
}

}  // namespace

std::span<const OnnxOp> MatmulImports() {
  static const OnnxOp ops[] = {
      {"", "MatMul", 2, 2, ImportMatMul, {.classifier = true, .scores = true, .weight_inputs = 0b11}},
      {"", "Gemm", 2, 3, ImportGemm, {.classifier = true, .weight_inputs = 0b110}},
      {"", "Einsum", 1, Arity::kMany, ImportEinsum},
      {"com.microsoft", "FusedMatMul", 2, 2, ImportFusedMatMul},
  };
  return ops;
}

}  // namespace onnxtrain
