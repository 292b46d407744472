// Imports QuantizeLinear and DequantizeLinear (ai.onnx and com.microsoft), and DynamicQuantizeLinear.
#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/quantize.h"
#include "frontend/ops/quantize.h"

namespace onnxtrain {

Val FixedInput(ImportContext& c, size_t i) {
  if (!c.has(i)) return Val();
  if (const HostTensor* known = c.Known(i)) return c.in(i).constant() != nullptr ? c.in(i) : c.b().Constant(*known);
  return IsFloat(c.in(i).dtype()) ? StraightThrough(c.in(i)) : c.in(i);
}

absl::StatusOr<QuantizedInput> ReadQuantized(ImportContext& c, size_t tensor, size_t scale, size_t zero, int64_t axis,
                                             int64_t block) {
  for (size_t needed : {tensor, scale}) {
    if (!c.has(needed)) return Invalid("input ", needed, " is missing");
  }
  const Val q = c.in(tensor);
  const auto grid = FindGrid(q.dtype());
  if (!grid) return Invalid("input ", tensor, " of type ", ToString(q.type()), " is not quantized");
  ASSIGN_OR_RETURN(const ScaleLayout layout, ScaleLayout::Create(q.shape(), c.in(scale).shape(), axis, block));
  Val factor = FixedInput(c, scale);
  if (!IsFloat(factor.dtype())) factor = Cast(factor, DType::kFloat32);
  const DType type = factor.dtype();
  QuantizedInput result{.scale = layout.Along(factor), .zero = layout.Along(Cast(FixedInput(c, zero), type))};
  const HostTensor *known_scale = c.Known(scale), *known_zero = c.has(zero) ? c.Known(zero) : nullptr;
  const bool known = q.constant() != nullptr && known_scale != nullptr && (known_zero != nullptr || !c.has(zero));
  if (known_zero != nullptr && !layout.Fits(known_zero->shape()))
    return Invalid("a zero point ", ToString(known_zero->type()), " beside scales ", ToString(c.in(scale).type()));
  if (known && q.type().elements() > 1 && (type == DType::kFloat32 || type == DType::kFloat64)) {
    const Val weight = c.AsFloatWeight(tensor, Dequantized(*q.constant(), *known_scale, known_zero, layout));
    if (weight) result.points = FakeQuantize(weight / result.scale, result.zero, *grid);
  }
  if (!result.points) result.points = GetFloatValues(q, type);
  return c.b().status().ok() ? absl::StatusOr<QuantizedInput>(result) : c.b().status();
}

absl::StatusOr<Val> ReadQuantizedBias(ImportContext& c, size_t bias, size_t scale, size_t factor) {
  if (!c.has(bias)) return Val();
  const Val q = c.in(bias);
  const HostTensor *a = c.Known(scale), *b = c.Known(factor);
  const bool one = a != nullptr && b != nullptr && (a->size() == 1 || b->size() == 1);
  if (q.constant() == nullptr || q.dtype() != DType::kInt32 || !one) return Cast(q, DType::kFloat32);
  const HostTensor product = ProductOfScales(*a, *b);
  ASSIGN_OR_RETURN(const ScaleLayout layout, ScaleLayout::Create(q.shape(), product.shape(), -1, 0));
  const Val weight = c.AsFloatWeight(bias, Dequantized(*q.constant(), product, nullptr, layout));
  if (!weight) return Cast(q, DType::kFloat32);
  return FakeQuantize(weight / layout.Along(c.b().Constant(product)), Val(), *FindGrid(DType::kInt32));
}

Val QuantizedInput::Centered() const { return zero ? points - zero : points; }

absl::StatusOr<Val> Quantize(ImportContext& c, Val x, size_t scale, size_t zero) {
  const auto grid = FindGrid(c.has(zero) ? c.in(zero).dtype() : DType::kUInt8);
  if (!grid || !c.has(scale)) return Invalid("inputs ", scale, " and ", zero, " are no scale and zero point");
  ASSIGN_OR_RETURN(const ScaleLayout layout, ScaleLayout::Create(x.shape(), c.in(scale).shape(), 1, 0));
  const Val factor = layout.Along(Cast(FixedInput(c, scale), x.dtype()));
  return Quantized(FakeQuantize(x / factor, layout.Along(Cast(FixedInput(c, zero), x.dtype())), *grid), *grid);
}

bool IsWeightInput(ImportContext& c, size_t i) {
  return c.has(i) && c.b().graph().IsInput(c.in(i).id()) && c.Known(i) != nullptr;
}

std::optional<Shape> FindBlock(const Shape& matrix, const Shape& scale, int64_t axis, int64_t block) {
  if (NumElements(scale) == 1 && block == 0) return matrix;
  const auto along = NormalizeAxis(axis, 2);
  if (!along.ok()) return std::nullopt;
  Shape extents = {1, 1};
  extents[static_cast<size_t>(*along)] = block;
  extents[static_cast<size_t>(1 - *along)] = block == 0 ? matrix[static_cast<size_t>(1 - *along)] : 1;
  if (block == 0) extents[static_cast<size_t>(*along)] = 1;
  return extents;
}

std::optional<QuantizedOperands> ReadStoredMatrix(ImportContext& c, size_t tensor, size_t scale, size_t zero,
                                                  int64_t axis, int64_t block) {
  const bool scaled = scale != QuantizedWeight::kNone;
  if (!IsWeightInput(c, tensor) || (scaled && !c.has(scale)) || c.in(tensor).rank() != 2) return std::nullopt;
  const Type q = c.in(tensor).type();
  const Shape shape = scaled ? c.in(scale).shape() : c.has(zero) ? c.in(zero).shape() : Shape();
  const auto extents = FindBlock(q.shape, shape, axis, block);
  if (!extents) return std::nullopt;
  QuantizedMatrix m{
      .rows = q.shape[0], .columns = q.shape[1], .block_rows = (*extents)[0], .block_columns = (*extents)[1]};
  const Shape scales = {m.scale_rows(), m.scale_columns()};
  if (NumElements(shape) != NumElements(scales)) return std::nullopt;
  QuantizedOperands w{
      .q = c.in(tensor),
      .scale = scaled ? Reshape(c.in(scale), scales) : c.b().Constant(HostTensor::Filled({DType::kFloat32, scales}, 1)),
      .matrix = m};
  const HostTensor* one = c.has(zero) && c.in(zero).type().elements() == 1 ? c.Known(zero) : nullptr;
  if (one != nullptr) {
    w.matrix.zero = one->At(0);
  } else if (c.has(zero)) {
    if (c.in(zero).type().elements() != NumElements(scales)) return std::nullopt;
    w.zero = Reshape(c.in(zero), scales);
  }
  const Type* zeros = w.zero ? &w.zero.type() : nullptr;
  auto read = ReadQuantizedMatrix(w.matrix.ToAttrs(), q, w.scale.type(), zeros);
  if (!read.ok()) return std::nullopt;
  w.matrix = *read;
  return w;
}

std::optional<QuantizedOperands> FindDequantized(Val x, bool* transposed) {
  const Node* node = x ? x.b().graph().producer(x.id()) : nullptr;
  if (node == nullptr) return std::nullopt;
  if (node->op == "Transpose" && x.rank() == 2) {
    if (node->attrs.Ints("perm") == Shape{1, 0}) *transposed = !*transposed;
    return FindDequantized(x.b().Wrap(node->inputs[0]), transposed);
  }
  if (node->op != "Dequantize") return std::nullopt;
  const auto matrix = ReadQuantizedMatrix(x.b().graph(), *node, 0);
  const auto input = [&](size_t i) { return i < node->inputs.size() ? x.b().Wrap(node->inputs[i]) : Val(); };
  return QuantizedOperands{.q = input(0), .scale = input(1), .zero = input(2), .matrix = *matrix};
}

HostTensor UnpackNumbers(const HostTensor& packed, int64_t bits, int64_t count) {
  Shape shape = packed.shape();
  const int64_t bytes = shape.back(), per_byte = 8 / bits, rows = packed.size() / std::max<int64_t>(1, bytes);
  shape.back() = count;
  HostTensor y({DType::kUInt8, shape});
  const auto from = packed.data<uint8_t>();
  const auto to = y.mutable_data<uint8_t>();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < count; ++i) {
      to[r * count + i] =
          static_cast<uint8_t>(from[r * bytes + i / per_byte] >> (i % per_byte * bits) & ((1 << bits) - 1));
    }
  }
  return y;
}

bool HasSeparateRows(const QuantizedMatrix& m) { return m.block_rows == 1 || m.block_rows == m.rows; }

ImportOr GatherRows(ImportContext& c, const QuantizedOperands& table, Val index) {
  Shape result = index.shape();
  const int64_t count = NumElements(result);
  const Val flat = Reshape(index, {count});
  const auto rows = [&](Val x) -> absl::StatusOr<Val> {
    if (!x || x.dim(0) != table.matrix.rows) return x;
    ASSIGN_OR_RETURN(const std::vector<Val> gathered, ImportAs(c, "", "Gather", {x, flat}, {{"axis", int64_t{0}}}));
    return gathered[0];
  };
  QuantizedOperands selected{.matrix = table.matrix};
  ASSIGN_OR_RETURN(selected.q, rows(table.q));
  ASSIGN_OR_RETURN(selected.scale, rows(table.scale));
  ASSIGN_OR_RETURN(selected.zero, rows(table.zero));
  selected.matrix.rows = count;
  if (table.matrix.block_rows != 1) selected.matrix.block_rows = std::max<int64_t>(count, 1);
  result.push_back(table.matrix.columns);
  return One(Reshape(Dequantize(selected, c.float_type), std::move(result)));
}

namespace {

absl::StatusOr<DType> QuantizedType(ImportContext& c) {
  const int64_t number = c.attrs().Int("output_dtype");
  if (number == 0) return c.has(2) ? c.in(2).dtype() : DType::kUInt8;
  ASSIGN_OR_RETURN(const DType dtype, ElementType(number));
  if (c.has(2) && c.in(2).dtype() != dtype)
    return Invalid("output_dtype disagrees with the zero point ", ToString(c.in(2).type()));
  return dtype;
}

// Returns the axis of the scales. Ignores the attribute for a one-dimensional tensor with one scale.
int64_t AxisFor(const ImportContext& c, size_t scale) {
  const bool single = !c.has(scale) || c.in(scale).type().elements() == 1;
  return single || c.in(0).rank() == 1 ? 0 : c.attrs().Int("axis", 1);
}

ImportOr ImportQuantize(ImportContext& c) {
  Val x = c.in(0);
  ASSIGN_OR_RETURN(const DType dtype, QuantizedType(c));
  const auto grid = FindGrid(dtype);
  if (!grid) return Invalid("cannot quantize to ", ToString(dtype));
  ASSIGN_OR_RETURN(const ScaleLayout layout,
                   ScaleLayout::Create(x.shape(), c.in(1).shape(), AxisFor(c, 1), c.attrs().Int("block_size")));
  Val scale = FixedInput(c, 1);
  DType type = IsFloat(scale.dtype()) ? scale.dtype() : DType::kFloat32;
  if (const int64_t precision = c.attrs().Int("precision"); precision != 0) {
    ASSIGN_OR_RETURN(type, ElementType(precision));
    if (!IsFloat(type)) return Invalid("precision ", ToString(type), " is no float type");
  }
  const Val scaled = Cast(x, type) / layout.Along(Cast(scale, type));
  const Val zero = layout.Along(Cast(FixedInput(c, 2), type));
  return One(Quantized(FakeQuantize(scaled, zero, *grid, c.attrs().Int("saturate", 1) != 0), *grid));
}

// Returns the type that a float type of the file has in the graph.
DType FloatTypeInGraph(const ImportContext& c, DType dtype) { return dtype == DType::kFloat64 ? dtype : c.float_type; }

ImportOr ImportDequantize(ImportContext& c) {
  if (const auto stored = ReadStoredMatrix(c, 0, 1, 2, AxisFor(c, 1), c.attrs().Int("block_size")))
    return One(Dequantize(*stored, FloatTypeInGraph(c, stored->scale.dtype())));
  ASSIGN_OR_RETURN(const QuantizedInput x, ReadQuantized(c, 0, 1, 2, AxisFor(c, 1), c.attrs().Int("block_size")));
  DType type = x.scale.dtype();
  if (const int64_t number = c.attrs().Int("output_dtype"); number != 0) {
    ASSIGN_OR_RETURN(type, ElementType(number));
    if (!IsFloat(type)) return Invalid("output_dtype ", ToString(type), " is no float type");
  }
  return One(Cast(x.Real(), type));
}

}  // namespace

// Quantizes as DynamicQuantizeLinear does: to uint8, with a range that includes 0.
DynamicRange QuantizedDynamically(Val x) {
  const Val fixed = StraightThrough(x);
  if (!fixed) return {};
  const Val zero = Number(x, 0);
  const Val high = Binary("Max", ReduceMax(fixed, {}, false), zero);
  const Val low =
      Binary("Min", fixed.b().Op("ReduceMin", {fixed}, {{"axes", Shape()}, {"keepdims", int64_t{0}}}), zero);
  const Val scale = (high - low) / 255.0;
  // The scale of a tensor of zeros is 0; divides by 1 instead.
  const Val divisor = Where(Equal(scale, 0.0), Number(x, 1), scale);
  const Attrs range = {{"min", 0.0}, {"max", 255.0}};
  const Val offset = Unary("Round", x.b().Op("Clip", {-(low / divisor)}, range));
  return {.points = FakeQuantize(x / divisor, offset, *FindGrid(DType::kUInt8)), .scale = scale, .zero = offset};
}

namespace {

ImportOr ImportDynamicQuantize(ImportContext& c) {
  const DynamicRange r = QuantizedDynamically(c.in(0));
  return std::vector<Val>{Quantized(r.points, *FindGrid(DType::kUInt8)), r.scale, Cast(r.zero, DType::kUInt8)};
}

}  // namespace

std::span<const OnnxOp> QuantizeLinearImports() {
  static constexpr OnnxOp ops[] = {
      {"",
       "QuantizeLinear",
       2,
       3,
       ImportQuantize,
       {.takes_numbers = true, .discrete_outputs = 1, .type_attr = "precision"}},
      {"", "DequantizeLinear", 2, 3, ImportDequantize, {.takes_numbers = true, .type_attr = "output_dtype"}},
      {"com.microsoft", "QuantizeLinear", 2, 3, ImportQuantize, {.takes_numbers = true}},
      {"com.microsoft", "DequantizeLinear", 2, 3, ImportDequantize, {.takes_numbers = true}},
      {"", "DynamicQuantizeLinear", 1, 1, ImportDynamicQuantize},
  };
  return ops;
}

}  // namespace onnxtrain
