#include <algorithm>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// Input i as i64. Where its values are known they must lie in [−extent, extent).
absl::StatusOr<Val> IndexInput(ImportContext& c, size_t i, int64_t extent) {
  const Val index = c.in(i);
  if (!IsInteger(index.dtype())) return Invalid("input ", i, " should be integer indices, got ", ToString(index.type()));
  if (const HostTensor* known = c.Known(i)) {
    for (int64_t k = 0, n = known->size(); k < n; ++k) {
      const int64_t at = known->IntAt(k);
      if (at < -extent || at >= extent) return Invalid("index ", at, " is outside an axis of extent ", extent);
    }
  }
  return Cast(index, DType::kInt64);
}

// Gather and GatherElements.
ImportOr ImportGather(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t axis, AxisOf(c, 0, c.in(0).rank()));
  ASSIGN_OR_RETURN(const Val index, IndexInput(c, 1, c.in(0).dim(static_cast<int>(axis))));
  return One(c.b().Op(c.node().op_type, {c.in(0), index}, {{"axis", axis}}));
}

// ---- multi-dimensional indices -------------------------------------------------------------------------------------

// Tuples of indices into the leading axes of x, as offsets into those axes made one.
struct Flattened {
  Val offset;         // i64[the tuples' shape without the last axis]
  Shape rows;         // [the product of the leading axes, the other axes…]
};

// Known tuples must lie within the extents, the last axis of the index one entry per extent.
absl::Status CheckTuples(const HostTensor* known, const Shape& extents) {
  for (int64_t i = 0, n = known == nullptr ? 0 : known->size(); i < n; ++i) {
    const int64_t at = known->IntAt(i), extent = extents[i % extents.size()];
    if (at < -extent || at >= extent) return Invalid("index ", at, " is outside an axis of extent ", extent);
  }
  return absl::OkStatus();
}

// The last axis of `index` names one place on each of the axes batch, batch + 1, …; the first `batch` axes run along.
absl::StatusOr<Flattened> FlattenIndex(ImportContext& c, Val x, size_t input, int64_t batch) {
  Val index = c.in(input);
  if (!IsInteger(index.dtype())) return Invalid("input ", input, " should be integer indices, got ", ToString(index.type()));
  if (batch < 0 || batch >= index.rank() || batch > x.rank()) return Invalid("batch_dims ", batch, " is out of range");
  const int64_t depth = index.dim(-1), split = batch + depth;
  if (split > x.rank()) return Invalid("tuples of ", depth, " do not index ", ToString(x.type()));
  const Shape& shape = x.shape();
  if (!std::equal(shape.begin(), shape.begin() + batch, index.shape().begin())) {
    return Invalid(ToString(x.type()), " and ", ToString(index.type()), " differ in the first ", batch, " axes");
  }
  const Shape leading(shape.begin(), shape.begin() + split), strides = Strides(leading);
  RETURN_IF_ERROR(CheckTuples(c.Known(input), Shape(leading.begin() + batch, leading.end())));
  // A negative place counts from the end of its axis.
  index = Cast(index, DType::kInt64);
  const Val extents = c.b().Ints(Ints(leading.begin() + batch, leading.end()));
  index = Where(Less(index, 0), index + extents, index);
  Val offset = ReduceSum(index * c.b().Ints(Ints(strides.begin() + batch, strides.end())), {-1}, false);
  for (int64_t axis = 0; axis < batch && offset.valid(); ++axis) {
    RETURN_IF_ERROR(CheckHostConstant({DType::kInt64, {shape[axis]}}));
    Ints steps;
    for (int64_t i = 0; i < shape[axis]; ++i) steps.push_back(i * strides[axis]);
    Shape along(offset.rank(), 1);
    along[axis] = shape[axis];
    offset = offset + Reshape(c.b().Ints(steps), std::move(along));
  }
  Flattened result{offset, {NumElements(leading)}};
  result.rows.insert(result.rows.end(), shape.begin() + split, shape.end());
  return result;
}

ImportOr ImportGatherND(ImportContext& c) {
  const Val x = c.in(0);
  ASSIGN_OR_RETURN(const Flattened f, FlattenIndex(c, x, 1, c.attrs().Int("batch_dims")));
  if (!f.offset.valid()) return One(Val());
  return One(c.b().Op("Gather", {Reshape(x, f.rows), f.offset}, {{"axis", int64_t{0}}}));
}

// x with updates written ("none") or added ("add") where `op`, the scattering that adds into zeros, puts them. With "none",
// ONNX leaves it open what happens where two updates meet; here they are added.
ImportOr Scattered(ImportContext& c, Val x, Val index, Val updates, std::string_view op, int64_t axis) {
  const std::string reduction = c.attrs().String("reduction", "none");
  if (reduction != "none" && reduction != "add") return absl::UnimplementedError(StrCat("reduction '", reduction, "'"));
  if (updates.dtype() != x.dtype()) return Invalid("updates of type ", ToString(updates.type()), " for ", ToString(x.type()));
  // The scattering rows are for floats; float64 holds every integer below 2^53.
  const DType sums = IsFloat(x.dtype()) ? x.dtype() : DType::kFloat64;
  auto scatter = [&](Val v) { return c.b().Op(op, {v, index}, {{"axis", axis}, {"input_shape", x.shape()}}); };
  const Val written = Cast(scatter(Cast(updates, sums)), x.dtype());
  if (reduction == "add") return One(x + written);
  const Val ones = Expand(c.b().Scalar(sums, 1), updates.shape());
  return One(Where(Greater(scatter(ones), 0), written, x));
}

ImportOr ImportScatterElements(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t axis, AxisOf(c, 0, c.in(0).rank()));
  ASSIGN_OR_RETURN(const Val index, IndexInput(c, 1, c.in(0).dim(static_cast<int>(axis))));
  return Scattered(c, c.in(0), index, c.in(2), "GatherElementsGrad", axis);
}

ImportOr ImportScatterND(ImportContext& c) {
  const Val x = c.in(0);
  ASSIGN_OR_RETURN(const Flattened f, FlattenIndex(c, x, 1, 0));
  ASSIGN_OR_RETURN(const std::vector<Val> y, Scattered(c, Reshape(x, f.rows), f.offset, c.in(2), "GatherGrad", 0));
  return One(Reshape(y[0], x.shape()));
}

// ---- OneHot, Compress, NonZero -------------------------------------------------------------------------------------

// Where(index = 0, 1, …, on, off). What is outside [−depth, depth) equals none of them.
ImportOr ImportOneHot(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t depth, KnownInt(c, 1, "depth"));
  const Type places{DType::kInt64, {depth}};
  RETURN_IF_ERROR(CheckHostConstant(places));
  const Val values = c.in(2);
  if (values.shape() != Shape{2}) return Invalid("values should be two numbers, got ", ToString(values.type()));
  Val index = Cast(c.in(0), DType::kInt64);
  ASSIGN_OR_RETURN(const int64_t axis, AxisOf(c, -1, index.rank() + 1));
  Shape shape = index.shape(), along(index.rank() + 1, 1);
  shape.insert(shape.begin() + axis, 1);
  along[axis] = depth;
  Ints classes(depth);
  std::iota(classes.begin(), classes.end(), 0);
  index = Reshape(Where(Less(index, 0), index + static_cast<double>(depth), index), std::move(shape));
  const Val hit = Equal(index, Reshape(c.b().Ints(classes), std::move(along)));
  return One(Where(hit, Slice(values, 0, 1, 1), Slice(values, 0, 0, 1)));
}

// The elements (or, with an axis, the slices) whose condition holds; it must be known, since it decides the shape.
ImportOr ImportCompress(ImportContext& c) {
  ASSIGN_OR_RETURN(const Ints condition, c.KnownInts(1, "condition"));
  Val x = c.in(0);
  int64_t axis = 0;
  if (c.attrs().Has("axis")) {
    ASSIGN_OR_RETURN(axis, AxisOf(c, 0, x.rank()));
  } else {
    x = Reshape(x, {x.type().elements()});
  }
  Ints index;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i]) index.push_back(static_cast<int64_t>(i));
  }
  if (!index.empty() && index.back() >= x.dim(static_cast<int>(axis))) {
    return Invalid("condition of ", condition.size(), " for ", ToString(x.type()));
  }
  return One(GatherConstant(x, index, axis));
}

// The places of the non-zero elements, one column each, of a known tensor.
ImportOr ImportNonZero(ImportContext& c) {
  const HostTensor* x = c.Known(0);
  if (x == nullptr) return Invalid("input 0 must be a constant: it decides the shape of the result");
  Ints found;
  for (int64_t i = 0, n = x->size(); i < n; ++i) {
    if (x->At(i) != 0) found.push_back(i);
  }
  const int64_t count = static_cast<int64_t>(found.size()), rank = x->type().rank();
  const Type type{DType::kInt64, {rank, count}};
  RETURN_IF_ERROR(CheckHostConstant(type));
  HostTensor places(type);
  const Shape strides = Strides(x->shape());
  for (int64_t axis = 0; axis < rank; ++axis) {
    for (int64_t k = 0; k < count; ++k) places.SetInt(axis * count + k, found[k] / strides[axis] % x->shape()[axis]);
  }
  return One(c.b().Constant(std::move(places)));
}

}  // namespace

std::span<const OnnxOp> IndexImports() {
  static const OnnxOp ops[] = {
      {"", "Gather", 2, 2, ImportGather},
      {"", "GatherElements", 2, 2, ImportGather},
      {"", "GatherND", 2, 2, ImportGatherND},
      {"", "ScatterElements", 3, 3, ImportScatterElements},
      {"", "Scatter", 3, 3, ImportScatterElements},
      {"", "ScatterND", 3, 3, ImportScatterND},
      {"", "OneHot", 3, 3, ImportOneHot},
      {"", "Compress", 2, 2, ImportCompress},
      {"", "NonZero", 1, 1, ImportNonZero},
  };
  return ops;
}

}  // namespace onnxtrain
