// Operators whose values depend on shapes alone: import folds them to constants of at most kMaxHostConstantBytes.
#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/shape.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

ImportOr ImportConstant(ImportContext& c) {
  const Attrs& a = c.attrs();
  if (const HostTensor* t = a.Tensor("value")) return One(c.b().Constant(*t));
  if (const auto* v = a.Find<double>("value_float")) return One(c.b().Scalar(DType::kFloat32, *v));
  if (const auto* v = a.Find<int64_t>("value_int")) {
    return One(c.b().Constant(HostTensor::FromInts({DType::kInt64, {}}, {v, 1})));
  }
  if (const auto* v = a.Find<std::vector<double>>("value_floats")) {
    return One(c.b().Constant(HostTensor::FromDoubles({DType::kFloat32, {static_cast<int64_t>(v->size())}}, *v)));
  }
  if (const auto* v = a.Find<Ints>("value_ints")) return One(c.b().Ints(*v));
  return absl::UnimplementedError("a constant without a dense numeric value");
}

// Extents start … end of the shape, counted and clamped as Python does.
ImportOr ImportShape(ImportContext& c) {
  const Shape& shape = c.in(0).shape();
  const int64_t rank = c.in(0).rank();
  auto resolve = [rank](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const int64_t start = resolve(c.attrs().Int("start")), end = resolve(c.attrs().Int("end", rank));
  return One(c.b().Ints(start < end ? Ints(shape.begin() + start, shape.begin() + end) : Ints()));
}

ImportOr ImportSize(ImportContext& c) {
  const int64_t size = c.in(0).type().elements();
  return One(c.b().Constant(HostTensor::FromInts({DType::kInt64, {}}, {&size, 1})));
}

// An expanded scalar: folded into a tensor where that is small enough.
ImportOr ImportConstantOfShape(ImportContext& c) {
  ASSIGN_OR_RETURN(Shape shape, c.KnownInts(0, "shape"));
  RETURN_IF_ERROR(CheckShape(shape));
  HostTensor value = HostTensor::Scalar(DType::kFloat32, 0);
  if (const HostTensor* t = c.attrs().Tensor("value")) {
    if (t->size() != 1) return Invalid("value should be one number, got ", ToString(t->type()));
    value = t->Reshaped({});
  }
  return One(Expand(c.b().Constant(std::move(value)), std::move(shape)));
}

// ⌈(limit − start)/delta⌉ elements.
absl::StatusOr<HostTensor> IntRange(DType dtype, __int128 start, __int128 limit, __int128 delta) {
  const __int128 span = delta > 0 ? limit - start : start - limit, step = delta > 0 ? delta : -delta;
  const __int128 count = span > 0 ? (span + step - 1) / step : 0;
  const Type type{dtype, {static_cast<int64_t>(std::min<__int128>(count, int64_t{1} << 41))}};
  RETURN_IF_ERROR(CheckHostConstant(type));
  HostTensor t(type);
  for (int64_t i = 0; i < t.size(); ++i) t.SetInt(i, static_cast<int64_t>(start + i * delta));
  return t;
}

absl::StatusOr<HostTensor> FloatRange(DType dtype, double start, double limit, double delta) {
  const double count = std::max(0.0, std::ceil((limit - start) / delta));
  if (!(count <= 0x1p41)) return Invalid("a range from ", start, " to ", limit, " by ", delta);
  const Type type{dtype, {static_cast<int64_t>(count)}};
  RETURN_IF_ERROR(CheckHostConstant(type));
  HostTensor t(type);
  for (int64_t i = 0; i < t.size(); ++i) t.Set(i, start + static_cast<double>(i) * delta);
  return t;
}

ImportOr ImportRange(ImportContext& c) {
  const DType dtype = c.in(0).dtype();
  if (IsFloat(dtype)) {
    ASSIGN_OR_RETURN(const double start, KnownDouble(c, 0, "start"));
    ASSIGN_OR_RETURN(const double limit, KnownDouble(c, 1, "limit"));
    ASSIGN_OR_RETURN(const double delta, KnownDouble(c, 2, "delta"));
    ASSIGN_OR_RETURN(HostTensor range, FloatRange(dtype, start, limit, delta));
    return One(c.b().Constant(std::move(range)));
  }
  ASSIGN_OR_RETURN(const int64_t start, KnownInt(c, 0, "start"));
  ASSIGN_OR_RETURN(const int64_t limit, KnownInt(c, 1, "limit"));
  ASSIGN_OR_RETURN(const int64_t delta, KnownInt(c, 2, "delta"));
  if (delta == 0) return Invalid("delta is 0");
  ASSIGN_OR_RETURN(HostTensor range, IntRange(dtype, start, limit, delta));
  return One(c.b().Constant(std::move(range)));
}

ImportOr ImportEyeLike(ImportContext& c) {
  const Val x = c.in(0);
  if (x.rank() != 2) return Invalid("expected a matrix, got ", ToString(x.type()));
  Type type = x.type();
  if (c.attrs().Has("dtype")) {
    ASSIGN_OR_RETURN(type.dtype, ElementType(c.attrs().Int("dtype")));
  }
  RETURN_IF_ERROR(CheckHostConstant(type));
  HostTensor eye(type);
  const int64_t k = std::clamp<int64_t>(c.attrs().Int("k"), -x.dim(0), x.dim(1));
  for (int64_t i = 0; i < x.dim(0); ++i) {
    if (i + k >= 0 && i + k < x.dim(1)) eye.SetInt(i * x.dim(1) + i + k, 1);
  }
  return One(c.b().Constant(std::move(eye)));
}

// Keeps what stands on and above (or below) the k-th diagonal of the last two axes.
ImportOr ImportTrilu(ImportContext& c) {
  const Val x = c.in(0);
  if (x.rank() < 2) return Invalid("expected matrices, got ", ToString(x.type()));
  int64_t k = 0;
  if (c.has(1)) {
    ASSIGN_OR_RETURN(k, KnownInt(c, 1, "k"));
  }
  const int64_t rows = x.dim(-2), columns = x.dim(-1);
  k = std::clamp<int64_t>(k, -rows - 1, columns + 1);
  const Type type{DType::kBool, {rows, columns}};
  RETURN_IF_ERROR(CheckHostConstant(type));
  HostTensor mask(type);
  const bool upper = c.attrs().Int("upper", 1);
  for (int64_t i = 0; i < mask.size(); ++i) {
    const int64_t above = i % columns - i / columns - k;
    mask.SetInt(i, upper ? above >= 0 : above <= 0);
  }
  return One(Masked(c.b().Constant(std::move(mask)), x));
}

}  // namespace

std::span<const OnnxOp> FillingImports() {
  static const OnnxOp ops[] = {
      {"", "Constant", 0, 0, ImportConstant},
      {"", "Shape", 1, 1, ImportShape},
      {"", "Size", 1, 1, ImportSize},
      {"", "ConstantOfShape", 1, 1, ImportConstantOfShape},
      {"", "Range", 3, 3, ImportRange, {.takes_numbers = true}},
      {"", "EyeLike", 1, 1, ImportEyeLike, {.type_attr = "dtype"}},
      {"", "Trilu", 1, 2, ImportTrilu},
  };
  return ops;
}

}  // namespace onnxtrain
