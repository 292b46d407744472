// Matrix products and determinants.
#include <Eigen/LU>
#include "frontend/base/status.h"
#include "frontend/ops/export/onnx_export.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/host_eval.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/leading_directions.h"
#include "frontend/ops/row.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

// Rows and columns of a matrix operand after its transposition.
struct Extents {
  int64_t rows, columns;
};

Extents MatMulExtents(const Shape& shape, bool transposed) {
  const int64_t r = shape[shape.size() - 2], c = shape[shape.size() - 1];
  return transposed ? Extents{c, r} : Extents{r, c};
}

Shape BatchShape(const Shape& shape) { return {shape.begin(), shape.end() - 2}; }

Shape WithMatrix(Shape batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

TypesOr MatMulTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireNumeric(c, 0));
  RETURN_IF_ERROR(RequireSameDType(c, 0, 1));
  RETURN_IF_ERROR(RequireMinRank(c, 0, 2));
  RETURN_IF_ERROR(RequireMinRank(c, 1, 2));
  const Extents a = MatMulExtents(c.in(0).shape, c.attrs.Int("trans_a")),
                b = MatMulExtents(c.in(1).shape, c.attrs.Int("trans_b"));
  if (a.columns != b.rows) {
    return Invalid("inner extents of ", ToString(c.in(0)), " and ", ToString(c.in(1)), " disagree: ", a.columns,
                   " and ", b.rows);
  }
  ASSIGN_OR_RETURN(Shape batch, BroadcastOrError(BatchShape(c.in(0).shape), BatchShape(c.in(1).shape)));
  return std::vector<Type>{{c.in(0).dtype, WithMatrix(std::move(batch), a.rows, b.columns)}};
}

// Reshapes [batch…, rows, columns] to one matrix [batch·rows, columns].
Val Flattened(Val x) {
  const int64_t columns = x.dim(-1);
  return Reshape(x, {NumElements(x.shape()) / std::max<int64_t>(1, columns), columns});
}

// For Y = A′B′ with A′ = A or Aᵀ, B′ = B or Bᵀ: dA′ = dY·B′ᵀ, so dA = dY·B′ᵀ or B′·dYᵀ.
Val GradA(Val dy, Val b, bool trans_a, bool trans_b) {
  return trans_a ? MatMul(b, dy, trans_b, true) : MatMul(dy, b, false, !trans_b);
}

// Likewise, dB′ = A′ᵀ·dY, so dB = A′ᵀ·dY or dYᵀ·A′.
Val GradB(Val dy, Val a, bool trans_a, bool trans_b) {
  return trans_b ? MatMul(dy, a, true, trans_a) : MatMul(a, dy, !trans_a, false);
}

std::vector<Val> MatMulGrad(const GradContext& c) {
  const bool trans_a = c.node.attrs.Int("trans_a"), trans_b = c.node.attrs.Int("trans_b");
  const Val a = c.x(0), b = c.x(1), dy = c.dy();
  std::vector<Val> grads(2);
  if (c.need(0)) grads[0] = SumTo(GradA(dy, b, trans_a, trans_b), a.shape());
  if (!c.need(1)) return grads;
  // If the batch shares the weight, one product over batch and rows replaces a batch of products and a sum.
  const bool shared = NumElements(BatchShape(b.shape())) == 1 && a.rank() > 2 && !trans_a && a.type().elements() > 0 &&
                      dy.type().elements() > 0;
  grads[1] = shared ? Reshape(GradB(Flattened(dy), Flattened(a), false, trans_b), b.shape())
                    : SumTo(GradB(dy, a, trans_a, trans_b), b.shape());
  return grads;
}

// Returns the strides that read an operand as [batch…, rows, columns], broadcast along the batch and possibly
// transposed.
Shape OperandStrides(const Shape& shape, const Shape& batch, bool transposed) {
  Shape strides = BroadcastStrides(shape, WithMatrix(batch, shape[shape.size() - 2], shape[shape.size() - 1]));
  if (transposed) std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  return strides;
}

std::vector<HostTensor> EvalMatMul(const EvalContext& c) {
  const HostTensor &a = *c.inputs[0], &b = *c.inputs[1];
  HostTensor y(c.output_types[0]);
  const Shape batch = BatchShape(y.shape());
  Shape sa = OperandStrides(a.shape(), batch, c.attrs.Int("trans_a")),
        sb = OperandStrides(b.shape(), batch, c.attrs.Int("trans_b"));
  const int64_t k = MatMulExtents(a.shape(), c.attrs.Int("trans_a")).columns;
  const int64_t step_a = sa.back(), step_b = sb[sb.size() - 2];
  sa.back() = 0;  // the column of the output does not move a, and its row does not move b
  sb[sb.size() - 2] = 0;
  Walk<2>(y.shape(), {sa, sb}, {0, 0}, [&](int64_t i, const std::array<int64_t, 2>& at) {
    double sum = 0;
    int64_t int_sum = 0;
    for (int64_t j = 0; j < k; ++j) {
      if (IsFloat(a.dtype())) {
        sum += a.At(at[0] + j * step_a) * b.At(at[1] + j * step_b);
      } else {
        int_sum = WrapAdd(int_sum, WrapMul(a.IntAt(at[0] + j * step_a), b.IntAt(at[1] + j * step_b)));
      }
    }
    IsFloat(a.dtype()) ? y.Set(i, sum) : y.SetInt(i, int_sum);
  });
  return {std::move(y)};
}

double MatMulFlops(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  const int64_t k = MatMulExtents(inputs[0]->shape, attrs.Int("trans_a")).columns;
  return 2.0 * static_cast<double>(outputs[0].elements()) * static_cast<double>(k);
}

}  // namespace

std::span<const OpRow> MatmulOps() {
  static const auto* rows = new std::vector<OpRow>{
      {.name = "MatMul",
       .inputs = {2, 2},
       .attrs = {{"trans_a", int64_t{0}}, {"trans_b", int64_t{0}}},
       .infer = MatMulTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = MatMulGrad,
       .evaluate = EvalMatMul,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = MatMulFlops,
       .layout = {.packed = 2},
       .init = {.roles = {WeightRole::kMatrix, WeightRole::kMatrix}},
       .emit = EmitMatMul,
       .simplify = SimplifyMatMul},
  };
  return *rows;
}

namespace {

// Requires square matrices in the last two axes, with a limit on their size, since determinants of larger matrices
// over- or underflow.
absl::Status CheckSquare(const Shape& x) {
  if (x.size() < 2 || x.back() != x[x.size() - 2]) return Invalid("expected square matrices, got ", ToString(x));
  return x.back() <= 1024 ? absl::OkStatus()
                          : Invalid("matrices of ", x.back(), " rows are too large for a determinant");
}

TypesOr DetTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(CheckSquare(c.in(0).shape));
  return std::vector<Type>{{c.in(0).dtype, Shape(c.in(0).shape.begin(), c.in(0).shape.end() - 2)}};
}

TypesOr CofactorTypes(const TypeContext& c) {
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(CheckSquare(c.in(0).shape));
  return std::vector<Type>{c.in(0)};
}

std::vector<Val> DetGradient(const GradContext& c) {
  Shape scale = c.y().shape();
  scale.insert(scale.end(), 2, 1);
  return {Reshape(c.dy(), scale) * c.b.Op("Cofactor", {c.x(0)})};
}

std::vector<HostTensor> EvaluateDet(const EvalContext& c) {
  HostTensor y(c.output_types[0]);
  const int64_t n = c.inputs[0]->shape().back();
  const std::vector<double> x = c.inputs[0]->ToDoubles();
  for (int64_t i = 0; i < y.size(); ++i) {
    const Eigen::Map<const Eigen::MatrixXd> matrix(x.data() + i * n * n, n, n);
    y.Set(i, n == 0 ? 1 : matrix.fullPivLu().determinant());
  }
  return {std::move(y)};
}

}  // namespace

std::span<const OpRow> DeterminantOps() {
  static const auto* rows = new std::vector<OpRow>{
      {.name = "Det",
       .inputs = {1, 1},
       .infer = DetTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = DetGradient,
       .evaluate = EvaluateDet,
       .precision = Precision::kFloat32,
       .onnx = ImportSame},
      {.name = "Cofactor", .inputs = {1, 1}, .infer = CofactorTypes, .precision = Precision::kFloat32},
      MakeLeadingDirectionsRow(),
  };
  return *rows;
}

}  // namespace onnxtrain
