#include "frontend/ops/grouped_product.h"

#include <numeric>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/rules.h"
#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kWeightGrad = "GroupedMatMulWeightGrad";

// Requires rows x [n, …] for m ids: n divides m.
absl::Status CheckRows(const TypeContext& c, size_t x, int64_t ids) {
  RETURN_IF_ERROR(RequireFloat(c, x));
  if (c.in(x).rank() != 2) return Invalid("expected rows, got ", ToString(c.in(x)));
  const int64_t rows = c.in(x).shape[0];
  return rows == ids || (rows > 0 && ids % rows == 0) ? absl::OkStatus() : Invalid(rows, " rows for ", ids, " indices");
}

absl::StatusOr<int64_t> ReadIds(const TypeContext& c, size_t input) {
  RETURN_IF_ERROR(RequireDType(c, input, DType::kInt64));
  if (c.in(input).rank() != 1) return Invalid("expected a list of indices, got ", ToString(c.in(input)));
  return c.in(input).shape[0];
}

TypesOr ProductTypes(const TypeContext& c) {
  const Type* zero = c.has(kGroupedMatrix + 2) ? &c.in(kGroupedMatrix + 2) : nullptr;
  ASSIGN_OR_RETURN(const QuantizedMatrix m,
                   ReadQuantizedMatrix(c.attrs, c.in(kGroupedMatrix), c.in(kGroupedMatrix + 1), zero));
  if (m.has_floats() && m.columns != c.in(kGroupedMatrix).shape[1])
    return Invalid(m.columns, " columns of ", ToString(c.in(kGroupedMatrix)));
  ASSIGN_OR_RETURN(const int64_t ids, ReadIds(c, kGroupedIds));
  RETURN_IF_ERROR(CheckRows(c, kGroupedX, ids));
  const int64_t groups = c.attrs.Int("groups");
  if (groups < 1 || m.rows % groups != 0) return Invalid(m.rows, " rows are not those of ", groups, " matrices");
  const int64_t rows = m.rows / groups;
  if (m.scale_rows() > 1 && rows % m.block_rows != 0)
    return Invalid("blocks of ", m.block_rows, " rows reach over matrices of ", rows);
  const bool transposed = c.attrs.Int("transposed") != 0;
  if (c.in(kGroupedX).shape[1] != (transposed ? m.columns : rows))
    return Invalid("inner extents of ", ToString(c.in(kGroupedX)), " and of ", rows, " by ", m.columns,
                   " numbers disagree");
  return std::vector<Type>{{c.in(kGroupedX).dtype, {ids, transposed ? rows : m.columns}}};
}

TypesOr WeightGradTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const int64_t ids, ReadIds(c, 2));
  RETURN_IF_ERROR(CheckRows(c, 0, ids));
  RETURN_IF_ERROR(CheckRows(c, 1, ids));
  RETURN_IF_ERROR(RequireSameDType(c, 0, 1));
  const int64_t groups = c.attrs.Int("groups"), rows = c.in(0).shape[1], columns = c.in(1).shape[1];
  if (groups < 1) return Invalid(groups, " groups");
  const DType wide = DTypeSize(c.in(0).dtype) < 4 ? DType::kFloat32 : c.in(0).dtype;
  const Type type{wide, {groups, rows, columns}};
  RETURN_IF_ERROR(CheckShape(type.shape));
  return std::vector<Type>{{wide, {groups * rows, columns}}};
}

// Sums [m, …] over the rows that read one row of n.
Val SumRepeats(Val x, int64_t n) {
  if (!x || x.dim(0) == n) return x;
  return ReduceSum(Reshape(x, {n, x.dim(0) / n, x.dim(1)}), {1}, false);
}

Val WeightGrad(Val a, Val b, Val ids, int64_t groups) {
  return a.b().Op(kWeightGrad, {a, b, ids}, {{"groups", groups}});
}

// dx = dy·Wᵀ. Floats with one scale get dW = yᵀ·x or xᵀ·y of their rows; other numbers and scales are not trained.
std::vector<Val> ProductGradient(const GradContext& c) {
  std::vector<Val> grads(c.inputs.size());
  const Val x = c.x(kGroupedX), ids = c.x(kGroupedIds), q = c.x(kGroupedMatrix), scale = c.x(kGroupedMatrix + 1);
  const bool transposed = c.node.attrs.Int("transposed") != 0;
  if (c.need(kGroupedX)) {
    Attrs attrs = c.node.attrs;
    attrs.Set("transposed", int64_t{!transposed});
    const Val dx = c.b.Op("GroupedMatMul", {c.dy(), ids, q, scale, c.x(kGroupedMatrix + 2)}, std::move(attrs));
    grads[kGroupedX] = SumRepeats(dx, x.dim(0));
  }
  if (c.need(kGroupedMatrix) && IsFloat(q.dtype()) && scale.type().elements() == 1) {
    const int64_t groups = c.node.attrs.Int("groups");
    const Val dw = transposed ? WeightGrad(c.dy(), x, ids, groups) : WeightGrad(x, c.dy(), ids, groups);
    grads[kGroupedMatrix] = dw ? Cast(dw * Cast(scale, dw.dtype()), q.dtype()) : dw;
  }
  return grads;
}

// W = Σ aᵀ·b has the gradients da = b·dWᵀ and db = a·dW.
std::vector<Val> WeightGradGradient(const GradContext& c) {
  const Val a = c.x(0), b = c.x(1), ids = c.x(2);
  const QuantizedOperands dw = FloatOperands(c.dy());
  const int64_t groups = c.node.attrs.Int("groups");
  const auto factor = [&](Val other, Val x, bool transposed) {
    const int64_t n = x.dim(0);
    return SumRepeats(Cast(GroupedMatMul(other, ids, dw, groups, transposed), x.dtype()), n);
  };
  return {c.need(0) ? factor(b, a, true) : Val(), c.need(1) ? factor(a, b, false) : Val(), Val()};
}

// Repeats each row so that there is one for each index.
Val RepeatRows(Val x, int64_t ids) {
  const int64_t n = x.dim(0), width = x.dim(1);
  if (n == ids) return x;
  return Reshape(Expand(Reshape(x, {n, 1, width}), {n, ids / n, width}), {ids, width});
}

// Returns 1 where index r is that of a group, [ids, groups].
Val OneHot(Val ids, int64_t groups, DType dtype) {
  std::vector<int64_t> all(groups);
  std::iota(all.begin(), all.end(), 0);
  const Val group = Gather(ids.b().Ints(all), ids, 0);  // not negative
  return Cast(Equal(Reshape(group, {ids.dim(0), 1}), ids.b().Ints(all)), dtype);
}

// Returns the floats of the matrix; floats with one scale by operators with a gradient.
Val ReadMatrix(const QuantizedOperands& w, DType dtype) {
  const bool plain = w.q && IsFloat(w.q.dtype()) && !w.zero && w.matrix.zero == 0 && w.scale.type().elements() == 1;
  return plain ? Cast(w.q, dtype) * Cast(w.scale, dtype) : Dequantize(w, dtype);
}

// Every row multiplies by a copy of its matrix.
std::vector<Val> DecomposeProduct(const DecomposeContext& c) {
  const Val x = c.x(kGroupedX), ids = c.x(kGroupedIds);
  const int64_t m = ids.dim(0), k = x.dim(1), groups = c.attrs.Int("groups");
  const Val w = ReadMatrix(TakeQuantizedOperands(c, kGroupedMatrix), x.dtype());
  if (!w) return {w};
  const int64_t rows = w.dim(0) / groups, columns = w.dim(1);
  const Val stack = Gather(Reshape(w, {groups, rows, columns}), ids, 0);
  const Val y = MatMul(Reshape(RepeatRows(x, m), {m, 1, k}), stack, false, c.attrs.Int("transposed") != 0);
  return {Reshape(y, c.output_types[0].shape)};
}

std::vector<Val> DecomposeWeightGrad(const DecomposeContext& c) {
  const Type& out = c.output_types[0];
  const Val ids = c.x(2);
  const int64_t m = ids.dim(0), groups = c.attrs.Int("groups");
  const Val a = RepeatRows(Cast(c.x(0), out.dtype), m), b = RepeatRows(Cast(c.x(1), out.dtype), m);
  const Val chosen = Reshape(Transpose(OneHot(ids, groups, out.dtype), {1, 0}), {groups, m, 1});
  return {Reshape(MatMul(a * chosen, b, true, false), out.shape)};
}

double ProductFlops(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs&) {
  return 2.0 * static_cast<double>(outputs[0].elements()) * static_cast<double>(inputs[kGroupedX]->shape[1]);
}

double WeightGradFlops(std::span<const Type* const> inputs, std::span<const Type>, const Attrs&) {
  return 2.0 * static_cast<double>(inputs[2]->shape[0] * inputs[0]->shape[1]) *
         static_cast<double>(inputs[1]->shape[1]);
}

}  // namespace

Val GroupedMatMul(Val x, Val ids, const QuantizedOperands& w, int64_t groups, bool transposed) {
  if (!x || !ids || !w.q || !w.scale) return Val();
  Attrs attrs = w.matrix.ToAttrs();
  attrs.Set("groups", groups);
  attrs.Set("transposed", int64_t{transposed});
  return x.b().Op("GroupedMatMul", {x, ids, w.q, w.scale, w.zero}, std::move(attrs));
}

std::vector<OpRow> MakeGroupedProductRows() {
  return {
      {.name = "GroupedMatMul",
       .inputs = {4, 5},
       .attrs = WithMatrixAttrs({{"groups", int64_t{1}, true}, {"transposed", int64_t{0}}}),
       .infer = ProductTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = ProductGradient,
       .decompose = DecomposeProduct,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = ProductFlops,
       .simplify = SimplifyGroupedMatMul},
      {.name = kWeightGrad,
       .inputs = {3, 3},
       .attrs = {{"groups", int64_t{1}, true}},
       .infer = WeightGradTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = WeightGradGradient,
       .decompose = DecomposeWeightGrad,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = WeightGradFlops,
       .is_gradient = true},
  };
}

}  // namespace onnxtrain
