// Gather and its kin.
#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/index.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// Known tuples must lie within the extents, the last axis of the index one entry per extent.
absl::Status CheckTuples(const HostTensor* known, const Shape& extents) {
  for (int64_t i = 0, n = known == nullptr ? 0 : known->size(); i < n; ++i) {
    const int64_t at = known->IntAt(i), extent = extents[i % extents.size()];
    if (at < -extent || at >= extent) return Invalid("index ", at, " is outside an axis of extent ", extent);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Val> IndexInput(ImportContext& c, size_t i, int64_t extent) {
  const Val index = c.in(i);
  if (!IsInteger(index.dtype()))
    return Invalid("input ", i, " should be integer indices, got ", ToString(index.type()));
  if (const HostTensor* known = c.Known(i)) {
    for (int64_t k = 0, n = known->size(); k < n; ++k) {
      const int64_t at = known->IntAt(k);
      if (at < -extent || at >= extent) return Invalid("index ", at, " is outside an axis of extent ", extent);
    }
  }
  return Cast(index, DType::kInt64);
}

absl::StatusOr<Flattened> FlattenIndex(ImportContext& c, Val x, size_t input, int64_t batch) {
  Val index = c.in(input);
  if (!IsInteger(index.dtype()))
    return Invalid("input ", input, " should be integer indices, got ", ToString(index.type()));
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

namespace {

// Gather and GatherElements.
ImportOr ImportGather(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, 0, c.in(0).rank()));
  ASSIGN_OR_RETURN(const Val index, IndexInput(c, 1, c.in(0).dim(static_cast<int>(axis))));
  Attrs attrs{{"axis", axis}};
  if (c.node().op_type == "Gather" && axis == 0) attrs.Set("padding_idx", c.attrs().Int(kPaddingRow, -1));
  return One(c.b().Op(c.node().op_type, {c.in(0), index}, std::move(attrs)));
}

ImportOr ImportGatherND(ImportContext& c) {
  const Val x = c.in(0);
  ASSIGN_OR_RETURN(const Flattened f, FlattenIndex(c, x, 1, c.attrs().Int("batch_dims")));
  if (!f.offset.valid()) return One(Val());
  return One(c.b().Op("Gather", {Reshape(x, f.rows), f.offset}, {{"axis", int64_t{0}}}));
}

}  // namespace

std::span<const OnnxOp> IndexImports() {
  static const OnnxOp ops[] = {
      {"", "Gather", 2, 2, ImportGather, {.moves = true, .weight_inputs = 0b1}},
      {"", "GatherElements", 2, 2, ImportGather},
      {"", "GatherND", 2, 2, ImportGatherND},
  };
  return ops;
}

}  // namespace onnxtrain
