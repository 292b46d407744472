// Imports Gather, Scatter and related operators.
#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/quantize.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// Requires one index per extent along the last axis, and known indices within the extents.
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
  // A negative index counts from the end of its axis.
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

// Imports Gather and GatherElements. Of a stored matrix, only the gathered rows become floats.
ImportOr ImportGather(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, 0, c.in(0).rank()));
  bool transposed = false;
  const auto table = c.node().op_type == "Gather" && axis == 0 ? FindDequantized(c.in(0), &transposed) : std::nullopt;
  if (table && !transposed && HasSeparateRows(table->matrix)) return GatherRows(c, *table, c.in(1));
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

namespace {

absl::Status CheckUpdates(const ImportContext& c, Val x, Val updates) {
  if (updates.dtype() == x.dtype()) return absl::OkStatus();
  return Invalid("updates of type ", ToString(updates.type()), " for ", ToString(x.type()));
}

Val ScatterAlong(Val x, Val index, Val updates, int64_t axis, std::string reduction) {
  if (!x.valid()) return Val();
  return x.b().Op("ScatterElements", {x, index, updates}, {{"axis", axis}, {"reduction", std::move(reduction)}});
}

// Imports ScatterElements, which is called Scatter up to opset 10.
ImportOr ImportScatterElements(ImportContext& c) {
  RETURN_IF_ERROR(CheckUpdates(c, c.in(0), c.in(2)));
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, 0, c.in(0).rank()));
  ASSIGN_OR_RETURN(const Val index, IndexInput(c, 1, c.in(0).dim(static_cast<int>(axis))));
  return One(ScatterAlong(c.in(0), index, c.in(2), axis, c.attrs().String("reduction", "none")));
}

// Scatters updates into rows [R,…] at offsets of rows. Float addition scatters whole rows, other cases single elements.
ImportOr ImportScatterND(ImportContext& c) {
  const Val x = c.in(0);
  RETURN_IF_ERROR(CheckUpdates(c, x, c.in(2)));
  ASSIGN_OR_RETURN(const Flattened f, FlattenIndex(c, x, 1, 0));
  if (!f.offset.valid()) return One(Val());
  Shape expected = f.offset.shape();
  expected.insert(expected.end(), f.rows.begin() + 1, f.rows.end());
  if (c.in(2).shape() != expected)
    return Invalid("updates should have the shape ", ToString(expected), ", got ", ToString(c.in(2).type()));
  const std::string reduction = c.attrs().String("reduction", "none");
  if (reduction == "add" && IsFloat(x.dtype())) {
    const Val added = c.b().Op("GatherGrad", {c.in(2), f.offset}, {{"axis", int64_t{0}}, {"input_shape", f.rows}});
    return One(x + Reshape(added, x.shape()));
  }
  const int64_t width = NumElements(Shape(f.rows.begin() + 1, f.rows.end())), count = f.offset.type().elements();
  const Val index = Expand(Reshape(f.offset, {count, 1}), {count, width});
  const Val y = ScatterAlong(Reshape(x, {f.rows[0], width}), index, Reshape(c.in(2), {count, width}), 0, reduction);
  return One(Reshape(y, x.shape()));
}

// Returns the positions along `axis` that TensorScatter writes, [batch, 1…, sequence, 1…].
absl::StatusOr<Val> CachePlaces(ImportContext& c, int64_t axis) {
  const Val cache = c.in(0), update = c.in(1);
  const int64_t length = update.dim(static_cast<int>(axis)), room = cache.dim(static_cast<int>(axis)),
                batch = cache.dim(0);
  RETURN_IF_ERROR(CheckHostConstant({DType::kInt64, {length}}));
  const std::string mode = c.attrs().String("mode", "linear");
  if (mode != "linear" && mode != "circular") return Invalid("mode '", mode, "' is neither linear nor circular");
  Shape along(cache.rank(), 1), of_batch(cache.rank(), 1);
  along[axis] = length;
  of_batch[0] = batch;
  Val places =
      c.b().Op("CumSum", {Expand(c.b().Scalar(DType::kInt64, 1), along)}, {{"axis", axis}, {"exclusive", int64_t{1}}});
  if (c.has(2)) {
    if (c.in(2).shape() != Shape{batch})
      return Invalid("write_indices should have shape [", batch, "], got ", ToString(c.in(2).type()));
    ASSIGN_OR_RETURN(const Val begin, IndexInput(c, 2, room));
    places = places + Reshape(begin, of_batch);
  }
  if (mode == "circular")
    places = c.b().Op("Mod", {places, c.b().Scalar(DType::kInt64, static_cast<double>(std::max<int64_t>(room, 1)))});
  return places;
}

// Imports TensorScatter, which writes new entries into a cache, for each sample at its own position.
ImportOr ImportTensorScatter(ImportContext& c) {
  const Val cache = c.in(0), update = c.in(1);
  RETURN_IF_ERROR(CheckUpdates(c, cache, update));
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, -2, cache.rank()));
  if (axis == 0) return Invalid("axis 0 is the batch");
  Shape expected = cache.shape();
  if (update.rank() == cache.rank()) expected[axis] = std::min(update.dim(static_cast<int>(axis)), expected[axis]);
  if (update.shape() != expected)
    return Invalid("an update of type ", ToString(update.type()), " for a cache of type ", ToString(cache.type()));
  ASSIGN_OR_RETURN(const Val places, CachePlaces(c, axis));
  return One(ScatterAlong(cache, Expand(places, update.shape()), update, axis, "none"));
}

}  // namespace

std::span<const OnnxOp> ScatterImports() {
  static const OnnxOp ops[] = {
      {"", "ScatterElements", 3, 3, ImportScatterElements},
      {"", "Scatter", 3, 3, ImportScatterElements},
      {"", "ScatterND", 3, 3, ImportScatterND},
      {"", "TensorScatter", 2, 3, ImportTensorScatter},
  };
  return ops;
}

}  // namespace onnxtrain
