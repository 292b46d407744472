#include "frontend/ops/dequantize.h"

#include <algorithm>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

constexpr int64_t kFloats = 0;                // the attribute `bits` of floats
constexpr std::string_view kNf4Code = "nf4";  // the attribute `code` of indices into kNf4

bool IsWidth(int64_t bits) { return bits == 2 || bits == 4 || bits == 8; }

// Floats, numbers that occupy a byte each, or several of which are packed into bytes.
bool HoldsNumbers(DType dtype, int64_t bits) {
  if (bits == kFloats) return IsFloat(dtype);
  const bool byte = DTypeSize(dtype) == 1 && dtype != DType::kBool && !IsSmallFloat(dtype);
  return byte && (bits == 8 || dtype == DType::kUInt8);
}

bool IsSigned(DType dtype) { return dtype == DType::kInt8 || dtype == DType::kInt4 || dtype == DType::kInt2; }

absl::Status CheckZero(const QuantizedMatrix& m, const Type& zero) {
  const bool floats = IsFloat(zero.dtype);
  const Shape want = {m.scale_rows(), floats ? m.scale_columns() : m.zero_row_bytes()};
  if (zero.shape == want && (floats || HoldsNumbers(zero.dtype, m.zero_bits))) return absl::OkStatus();
  return Invalid("zero points ", ToString(zero), " beside scales of ", m.scale_rows(), " by ", m.scale_columns());
}

}  // namespace

Attrs QuantizedMatrix::ToAttrs() const {
  Attrs attrs = {{"columns", columns},
                 {"bits", has_floats() ? kFloats : bits},
                 {"block", Shape{block_rows, block_columns}},
                 {"zero", zero},
                 {"zero_bits", zero_bits}};
  if (nf4) attrs.Set("code", std::string(kNf4Code));
  return attrs;
}

absl::StatusOr<QuantizedMatrix> ReadQuantizedMatrix(const Attrs& attrs, const Type& q, const Type& scale,
                                                    const Type* zero) {
  const Shape block = attrs.Ints("block");
  QuantizedMatrix m{.columns = attrs.Int("columns"),
                    .bits = attrs.Int("bits"),
                    .is_signed = IsSigned(q.dtype),
                    .zero_bits = attrs.Int("zero_bits"),
                    .zero = attrs.Float("zero"),
                    .nf4 = attrs.String("code") == kNf4Code};
  const bool is_width = IsWidth(m.bits) || m.bits == kFloats;
  if (!is_width || !IsWidth(m.zero_bits) || !HoldsNumbers(q.dtype, m.bits) || q.rank() != 2)
    return Invalid(ToString(q), " holds no numbers of ", m.bits, " bits, zero points of ", m.zero_bits);
  const auto stored_bits = static_cast<int64_t>(DTypeSize(q.dtype)) * 8;
  if (m.bits == kFloats) m.bits = stored_bits;
  m.rows = q.shape[0];
  m.row_bytes = q.shape[1] * stored_bits / 8;
  if (m.columns < 0 || m.columns > m.row_bytes * 8 / m.bits)
    return Invalid(ToString(q), " has less than ", m.columns, " columns of ", m.bits, " bits");
  if (block.size() != 2 || block[0] < 1 || block[1] < 1) return Invalid("a block of ", ToString(block));
  m.block_rows = std::min(block[0], std::max<int64_t>(m.rows, 1));
  m.block_columns = std::min(block[1], std::max<int64_t>(m.columns, 1));
  if (!IsFloat(scale.dtype) || scale.shape != Shape{m.scale_rows(), m.scale_columns()})
    return Invalid("scales ", ToString(scale), " beside ", m.rows, " by ", m.columns, " numbers in blocks of ",
                   ToString(block));
  if (zero != nullptr) RETURN_IF_ERROR(CheckZero(m, *zero));
  if (m.nf4 && (m.bits != 4 || zero != nullptr || m.zero != 0))
    return Invalid("numbers of NF4 have 4 bits and no zero point");
  return m;
}

absl::StatusOr<QuantizedMatrix> ReadQuantizedMatrix(const Graph& graph, const Node& node, size_t first) {
  const bool has_zero = node.inputs.size() > first + 2 && node.inputs[first + 2] != kNoValue;
  return ReadQuantizedMatrix(node.attrs, graph.type(node.inputs[first]), graph.type(node.inputs[first + 1]),
                             has_zero ? &graph.type(node.inputs[first + 2]) : nullptr);
}

QuantizedOperands FloatOperands(Val stored) {
  if (!stored) return {};
  const int64_t rows = stored.dim(0), columns = stored.dim(1);
  const auto bytes = static_cast<int64_t>(DTypeSize(stored.dtype()));
  return {.q = stored,
          .scale = stored.b().Constant(HostTensor::Filled({DType::kFloat32, {1, 1}}, 1)),
          .matrix = {.rows = rows,
                     .columns = columns,
                     .row_bytes = columns * bytes,
                     .bits = bytes * 8,
                     .block_rows = std::max<int64_t>(rows, 1),
                     .block_columns = std::max<int64_t>(columns, 1)}};
}

Val Dequantize(const QuantizedOperands& w, DType dtype) {
  if (!w.q || !w.scale) return Val();
  Attrs attrs = w.matrix.ToAttrs();
  attrs.Set("dtype", std::string(ToString(dtype)));
  return w.q.b().Op("Dequantize", {w.q, w.scale, w.zero}, std::move(attrs));
}

Val MatMulDequantized(Val x, const QuantizedOperands& w, bool transposed) {
  if (!x || !w.q || !w.scale) return Val();
  Attrs attrs = w.matrix.ToAttrs();
  attrs.Set("transposed", int64_t{transposed});
  return x.b().Op("MatMulDequantized", {x, w.q, w.scale, w.zero}, std::move(attrs));
}

std::vector<AttrSpec> WithMatrixAttrs(const std::vector<AttrSpec>& own) {
  std::vector<AttrSpec> attrs = {{"columns", int64_t{0}, true}, {"bits", int64_t{8}},
                                 {"block", Shape{}, true},      {"zero", 0.0},
                                 {"zero_bits", int64_t{8}},     {"code", std::string()}};
  attrs.insert(attrs.end(), own.begin(), own.end());
  return attrs;
}

QuantizedOperands TakeQuantizedOperands(const DecomposeContext& c, size_t first) {
  QuantizedOperands w{.q = c.x(first), .scale = c.x(first + 1), .zero = c.x(first + 2)};
  auto matrix = ReadQuantizedMatrix(c.attrs, w.q.type(), w.scale.type(), w.zero ? &w.zero.type() : nullptr);
  if (matrix.ok()) w.matrix = *matrix;
  return w;
}

namespace {

absl::StatusOr<QuantizedMatrix> ReadOperands(const TypeContext& c, size_t first) {
  return ReadQuantizedMatrix(c.attrs, c.in(first), c.in(first + 1), c.has(first + 2) ? &c.in(first + 2) : nullptr);
}

TypesOr DequantizeTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const QuantizedMatrix m, ReadOperands(c, 0));
  const auto dtype = ParseDType(c.attrs.String("dtype"));
  if (!dtype || !IsFloat(*dtype)) return Invalid("cannot dequantize to '", c.attrs.String("dtype"), "'");
  return std::vector<Type>{{*dtype, {m.rows, m.columns}}};
}

TypesOr ProductTypes(const TypeContext& c) {
  ASSIGN_OR_RETURN(const QuantizedMatrix m, ReadOperands(c, 1));
  RETURN_IF_ERROR(RequireFloat(c, 0));
  RETURN_IF_ERROR(RequireMinRank(c, 0, 2));
  const bool transposed = c.attrs.Int("transposed") != 0;
  Type y = c.in(0);
  if (y.shape.back() != (transposed ? m.columns : m.rows))
    return Invalid("inner extents of ", ToString(c.in(0)), " and of ", m.rows, " by ", m.columns, " numbers disagree");
  y.shape.back() = transposed ? m.rows : m.columns;
  return std::vector<Type>{std::move(y)};
}

// Returns the numbers [rows, columns] of packed rows as integers of a byte.
Val Unpacked(Val q, int64_t bits, int64_t columns) {
  if (!q || bits >= 8) return q;
  const int64_t rows = q.dim(0), bytes = q.dim(1), per_byte = 8 / bits;
  HostTensor divisors({DType::kUInt8, {per_byte}}), mask = HostTensor::Scalar(DType::kUInt8, (1 << bits) - 1);
  for (int64_t i = 0; i < per_byte; ++i) divisors.SetInt(i, int64_t{1} << (i * bits));
  Builder& b = q.b();
  const Val shifted = Reshape(q, {rows, bytes, 1}) / b.Constant(std::move(divisors));
  const Val numbers = b.Op("BitwiseAnd", {shifted, b.Constant(std::move(mask))});
  return Slice(Reshape(numbers, {rows, bytes * per_byte}), 1, 0, columns);
}

// Repeats each element of [rows, columns] over its block.
Val OverBlocks(Val x, const QuantizedMatrix& m) {
  if (!x || (m.scale_rows() == 1 && m.scale_columns() == 1)) return x;
  const int64_t rows = m.scale_rows(), columns = m.scale_columns();
  const Val wide = Expand(Reshape(x, {rows, 1, columns, 1}), {rows, m.block_rows, columns, m.block_columns});
  const Val joined = Reshape(wide, {rows * m.block_rows, columns * m.block_columns});
  return Slice(Slice(joined, 0, 0, m.rows), 1, 0, m.columns);
}

// Returns the values that indices into kNf4 stand for.
Val LookUpNf4(Val index, DType dtype) {
  const std::vector<double> values(kNf4.begin(), kNf4.end());
  const Val table = index.b().Constant(HostTensor::FromDoubles({dtype, {std::ssize(values)}}, values));
  return index.b().Op("Gather", {table, Cast(index, DType::kInt64)}, {{"axis", int64_t{0}}});
}

std::vector<Val> DecomposeDequantize(const DecomposeContext& c) {
  const QuantizedOperands w = TakeQuantizedOperands(c, 0);
  const QuantizedMatrix& m = w.matrix;
  const DType dtype = c.output_types[0].dtype;
  const DType wide = DTypeSize(dtype) < 4 ? DType::kFloat32 : dtype;
  const Val stored = Unpacked(w.q, m.bits, m.columns), numbers = m.nf4 ? LookUpNf4(stored, wide) : Cast(stored, wide);
  const Val zeros = w.zero && !IsFloat(w.zero.dtype()) ? Unpacked(w.zero, m.zero_bits, m.scale_columns()) : w.zero;
  const Val centered = zeros ? numbers - OverBlocks(Cast(zeros, wide), m) : m.zero == 0 ? numbers : numbers - m.zero;
  return {Cast(centered * OverBlocks(Cast(w.scale, wide), m), dtype)};
}

std::vector<Val> DecomposeProduct(const DecomposeContext& c) {
  return {
      MatMul(c.x(0), Dequantize(TakeQuantizedOperands(c, 1), c.x(0).dtype()), false, c.attrs.Int("transposed") != 0)};
}

// Reads element (row, column) of packed rows.
double ReadNumber(const HostTensor& q, int64_t bits, int64_t row, int64_t column) {
  const int64_t begin = row * q.shape()[1];
  if (bits >= 8) {
    const int64_t at = begin + column;
    return IsStorage(q.dtype()) || IsFloat(q.dtype()) ? q.At(at) : static_cast<double>(q.IntAt(at));
  }
  const int64_t per_byte = 8 / bits, shift = column % per_byte * bits;
  return static_cast<double>(q.IntAt(begin + column / per_byte) >> shift & ((1 << bits) - 1));
}

// Returns the matrix of the inputs from `first` on.
HostTensor EvaluateMatrix(const EvalContext& c, size_t first, DType dtype) {
  const HostTensor &q = *c.inputs[first], &scale = *c.inputs[first + 1];
  const HostTensor* zero = c.inputs.size() > first + 2 ? c.inputs[first + 2] : nullptr;
  const auto read = ReadQuantizedMatrix(c.attrs, q.type(), scale.type(), zero == nullptr ? nullptr : &zero->type());
  const QuantizedMatrix m = read.ok() ? *read : QuantizedMatrix();
  HostTensor y({dtype, {m.rows, m.columns}});
  const bool floats = dtype != DType::kFloat64;
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t row = i / m.columns, column = i % m.columns;
    const int64_t of_row = row / m.block_rows, of_column = column / m.block_columns;
    const int64_t zero_bits = zero != nullptr && IsFloat(zero->dtype()) ? 8 : m.zero_bits;
    const double z = zero == nullptr ? m.zero : ReadNumber(*zero, zero_bits, of_row, of_column);
    const double s = scale.At(of_row * m.scale_columns() + of_column), number = ReadNumber(q, m.bits, row, column);
    const double n = m.nf4 ? kNf4[static_cast<size_t>(number)] : number;
    y.Set(i, floats ? (static_cast<float>(n) - static_cast<float>(z)) * static_cast<float>(s) : (n - z) * s);
  }
  return y;
}

std::vector<HostTensor> EvaluateDequantize(const EvalContext& c) {
  return {EvaluateMatrix(c, 0, c.output_types[0].dtype)};
}

std::vector<HostTensor> EvaluateProduct(const EvalContext& c) {
  const HostTensor &x = *c.inputs[0], w = EvaluateMatrix(c, 1, x.dtype());
  HostTensor y(c.output_types[0]);
  const bool transposed = c.attrs.Int("transposed") != 0;
  const int64_t inner = x.shape().back(), outer = y.shape().back();
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t row = i / outer, column = i % outer;
    double sum = 0;
    for (int64_t k = 0; k < inner; ++k)
      sum += x.At(row * inner + k) * w.At(transposed ? column * inner + k : k * outer + column);
    y.Set(i, sum);
  }
  return {std::move(y)};
}

// dx = dy·Wᵀ; stored numbers and their scales are not trained.
std::vector<Val> ProductGradient(const GradContext& c) {
  std::vector<Val> grads(c.inputs.size());
  if (!c.need(0)) return grads;
  Attrs attrs = c.node.attrs;
  attrs.Set("transposed", int64_t{attrs.Int("transposed") == 0});
  grads[0] = c.b.Op("MatMulDequantized", {c.dy(), c.x(1), c.x(2), c.x(3)}, std::move(attrs));
  return grads;
}

double ProductFlops(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs&) {
  return 2.0 * static_cast<double>(outputs[0].elements()) * static_cast<double>(inputs[0]->shape.back());
}

}  // namespace

std::vector<OpRow> MakeDequantizeRows() {
  return {
      {.name = "Dequantize",
       .inputs = {2, 3},
       .attrs = WithMatrixAttrs({{"dtype", std::string("f32")}}),
       .infer = DequantizeTypes,
       .grad_status = GradStatus::kZero,
       .decompose = DecomposeDequantize,
       .evaluate = EvaluateDequantize,
       .precision = Precision::kFloat32},
      {.name = "MatMulDequantized",
       .inputs = {3, 4},
       .attrs = WithMatrixAttrs({{"transposed", int64_t{0}}}),
       .infer = ProductTypes,
       .grad_status = GradStatus::kFormula,
       .gradient = ProductGradient,
       .decompose = DecomposeProduct,
       .evaluate = EvaluateProduct,
       .precision = Precision::kLow,
       .recompute = Recompute::kExpensive,
       .flops = ProductFlops},
  };
}

}  // namespace onnxtrain
