#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/index.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

absl::Status CheckUpdates(const ImportContext& c, Val x, Val updates) {
  if (updates.dtype() == x.dtype()) return absl::OkStatus();
  return Invalid("updates of type ", ToString(updates.type()), " for ", ToString(x.type()));
}

Val ScatterAlong(Val x, Val index, Val updates, int64_t axis, std::string reduction) {
  if (!x.valid()) return Val();
  return x.b().Op("ScatterElements", {x, index, updates}, {{"axis", axis}, {"reduction", std::move(reduction)}});
}

// Scatter is its name up to opset 10.
ImportOr ImportScatterElements(ImportContext& c) {
  RETURN_IF_ERROR(CheckUpdates(c, c.in(0), c.in(2)));
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, 0, c.in(0).rank()));
  ASSIGN_OR_RETURN(const Val index, IndexInput(c, 1, c.in(0).dim(static_cast<int>(axis))));
  return One(ScatterAlong(c.in(0), index, c.in(2), axis, c.attrs().String("reduction", "none")));
}

// Rows [R,…] and offsets of rows: floats are added by the row, everything else element by element.
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

// The places along `axis` that TensorScatter writes, [batch, 1…, sequence, 1…].
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

// A cache with new entries written at each sample's own place.
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
