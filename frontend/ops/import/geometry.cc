// Imports MaxUnpool, Col2Im and CenterCropPad, which rearrange elements.
#include <algorithm>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

Val Integer(Builder& b, int64_t value) { return b.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&value, 1})); }

struct Unpool {
  Shape inferred;    // spatial extents that the windows cover
  Shape out;         // spatial extents of the output
  bool overlapping;  // several windows may have the same maximum
};

absl::StatusOr<Unpool> ReadUnpool(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  RETURN_IF_ERROR(RequireSpatial(c));
  const Val x = c.in(0);
  if (c.in(1).dtype() != DType::kInt64 || c.in(1).shape() != x.shape()) {
    return Invalid("expected indices for ", ToString(x.type()), ", got ", ToString(c.in(1).type()));
  }
  const auto pooled = Spatial(x.shape());
  ASSIGN_OR_RETURN(const Windows w, ImportWindows(c.attrs(), c.attrs().Ints("kernel_shape"), pooled));
  Unpool u{.overlapping = false};
  for (size_t a = 0; a < w.axes(); ++a) {
    if (pooled[a] >= int64_t{1} << 31) return Invalid(ToString(x.type()), " is too large to be unpooled");
    u.inferred.push_back((pooled[a] - 1) * w.strides[a] - w.pads[a] - w.pads[a + w.axes()] + w.kernel[a]);
    u.overlapping |= w.strides[a] < w.kernel[a];
  }
  u.out = u.inferred;
  if (c.has(2)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> shape, c.KnownInts(2, "output_shape"));
    if (static_cast<int>(shape.size()) != x.rank() || shape[0] != x.dim(0) || shape[1] != x.dim(1)) {
      return Invalid("output_shape ", ToString(shape), " does not fit to ", ToString(x.type()));
    }
    u.out.assign(shape.begin() + 2, shape.end());
    // Indices count within the output, like the indices of MaxPool. In ONNX's test data, they count within the extents
    // that the windows cover, which are then padded.
    if (!c.conformance) u.inferred = u.out;
  }
  RETURN_IF_ERROR(CheckShape(u.inferred));
  RETURN_IF_ERROR(CheckShape(u.out));
  if (NumElements(u.inferred) == 0 && NumElements(x.shape()) > 0)
    return Invalid("the output ", ToString(u.inferred), " is empty");
  return u;
}

// Adds the elements of x at their indices. With `overlapping`, divides by the number of windows that wrote an element,
// all of which have the same maximum.
Val Scattered(Val x, Val index, int64_t plane, bool overlapping) {
  const Attrs attrs = {{"axis", int64_t{2}}, {"input_shape", Shape{x.dim(0), x.dim(1), plane}}};
  Builder& b = x.b();
  const Val sum = b.Op("GatherElementsGrad", {x, index}, attrs);
  if (!overlapping || !sum) return sum;
  const Val count = b.Op("GatherElementsGrad", {Ones(x, x.shape()), index}, attrs);
  return sum / Binary("Max", count, Number(x, 1));
}

ImportOr ImportMaxUnpool(ImportContext& c) {
  ASSIGN_OR_RETURN(const Unpool u, ReadUnpool(c));
  const Val x = c.in(0);
  if (!IsFloat(x.dtype())) return Invalid("cannot unpool ", ToString(x.type()));
  const Shape flat = {x.dim(0), x.dim(1), NumElements(Shape(x.shape().begin() + 2, x.shape().end()))};
  const int64_t plane = NumElements(u.inferred);
  const Val index = c.b().Op("Mod", {Reshape(c.in(1), flat), Integer(c.b(), std::max<int64_t>(plane, 1))});
  Shape shape = {x.dim(0), x.dim(1)};
  shape.insert(shape.end(), u.inferred.begin(), u.inferred.end());
  Val y = Reshape(Scattered(Reshape(x, flat), index, plane, u.overlapping), shape);
  if (u.out == u.inferred || !y) return One(y);
  Shape pads(2 * u.out.size(), 0);
  for (size_t a = 0; a < u.out.size(); ++a) {
    const int axis = static_cast<int>(a) + 2;
    if (u.out[a] < u.inferred[a]) y = Slice(y, axis, 0, u.out[a]);
    pads[a + u.out.size()] = std::max<int64_t>(0, u.out[a] - u.inferred[a]);
  }
  return One(PadSpatial(y, pads, 0));
}

struct Blocks {
  Shape image, block, strides, dilations, pads, counts;  // per axis; pads: begins, then ends

  size_t axes() const { return image.size(); }
  int64_t Padded(size_t a) const { return image[a] + pads[a] + pads[a + axes()]; }
};

absl::Status CheckBetween(const Shape& values, size_t count, int64_t least, std::string_view what) {
  const bool ok = values.size() == count && std::all_of(values.begin(), values.end(),
                                                        [&](int64_t v) { return v >= least && v < int64_t{1} << 31; });
  return ok ? absl::OkStatus()
            : Invalid(what, " ", ToString(values), " should be ", count, " numbers of at least ", least);
}

absl::StatusOr<Blocks> ReadBlocks(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 3));
  Blocks k;
  ASSIGN_OR_RETURN(k.image, c.KnownInts(1, "image_shape"));
  ASSIGN_OR_RETURN(k.block, c.KnownInts(2, "block_shape"));
  const size_t n = k.image.size();
  k.strides = c.attrs().Ints("strides", Shape(n, 1));
  k.dilations = c.attrs().Ints("dilations", Shape(n, 1));
  k.pads = c.attrs().Ints("pads", Shape(2 * n, 0));
  RETURN_IF_ERROR(CheckBetween(k.image, n, 1, "image_shape"));
  RETURN_IF_ERROR(CheckBetween(k.block, n, 1, "block_shape"));
  RETURN_IF_ERROR(CheckBetween(k.strides, n, 1, "strides"));
  RETURN_IF_ERROR(CheckBetween(k.dilations, n, 1, "dilations"));
  RETURN_IF_ERROR(CheckBetween(k.pads, 2 * n, 0, "pads"));
  for (size_t a = 0; a < n; ++a) {
    const int64_t room = k.Padded(a) - (k.block[a] - 1) * k.dilations[a] - 1;
    if (room < 0) return Invalid("a block of ", ToString(k.block), " does not fit into ", ToString(k.image));
    k.counts.push_back(room / k.strides[a] + 1);
  }
  RETURN_IF_ERROR(CheckShape(k.block));
  RETURN_IF_ERROR(CheckShape(k.counts));
  return k;
}

// Returns the destination along axis a, for each position within a block and each block.
absl::StatusOr<Val> BlockIndex(Builder& b, const Blocks& k, size_t a) {
  RETURN_IF_ERROR(CheckHostConstant({DType::kInt64, {k.block[a], k.counts[a]}}));
  std::vector<int64_t> index;
  for (int64_t part = 0; part < k.block[a]; ++part) {
    for (int64_t i = 0; i < k.counts[a]; ++i) index.push_back(part * k.dilations[a] + i * k.strides[a]);
  }
  return b.Ints(index);
}

// Reshapes [N, C·Π block, Π counts] to [N, C, block₁·counts₁, …].
Val AxisByAxis(Val x, const Blocks& k, int64_t channels) {
  const auto n = static_cast<int64_t>(k.axes());
  Shape split = {x.dim(0), channels}, merged = split;
  split.insert(split.end(), k.block.begin(), k.block.end());
  split.insert(split.end(), k.counts.begin(), k.counts.end());
  std::vector<int64_t> perm = {0, 1};
  for (int64_t a = 0; a < n; ++a) {
    perm.insert(perm.end(), {2 + a, 2 + n + a});
    merged.push_back(k.block[a] * k.counts[a]);
  }
  return Reshape(Transpose(Reshape(x, split), perm), merged);
}

// Imports Col2Im. Adds overlapping elements, one axis after the other.
ImportOr ImportCol2Im(ImportContext& c) {
  ASSIGN_OR_RETURN(const Blocks k, ReadBlocks(c));
  const Val in = c.in(0);
  const int64_t block = NumElements(k.block);
  if (in.rank() != 3 || in.dim(1) % block != 0 || in.dim(2) != NumElements(k.counts)) {
    return Invalid(ToString(in.type()), " holds no blocks of ", ToString(k.block), " of an image ", ToString(k.image));
  }
  Val y = AxisByAxis(IsFloat(in.dtype()) ? in : Cast(in, DType::kFloat32), k, in.dim(1) / block);
  for (size_t a = 0; a < k.axes() && y; ++a) {
    const auto axis = static_cast<int64_t>(a) + 2;
    ASSIGN_OR_RETURN(const Val index, BlockIndex(c.b(), k, a));
    Shape shape = y.shape();
    shape[axis] = k.Padded(a);
    y = c.b().Op("GatherGrad", {y, index}, {{"axis", axis}, {"input_shape", shape}});
    if (y && k.Padded(a) != k.image[a]) y = Slice(y, axis, k.pads[a], k.image[a]);
  }
  if (!y) return c.b().status();
  return One(Cast(y, in.dtype()));
}

ImportOr ImportCenterCropPad(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  Val x = c.in(0);
  const int rank = x.rank();
  std::vector<int64_t> axes(rank);
  for (int a = 0; a < rank; ++a) axes[a] = a;
  ASSIGN_OR_RETURN(axes, NormalizeAxes(c.attrs().Ints("axes", axes), rank));
  ASSIGN_OR_RETURN(const std::vector<int64_t> shape, c.KnownInts(1, "shape"));
  if (shape.size() != axes.size()) return Invalid("shape ", ToString(shape), " should have ", axes.size(), " entries");
  RETURN_IF_ERROR(CheckShape(shape));
  Shape pads(2 * rank, 0);
  for (size_t i = 0; i < axes.size() && x; ++i) {
    const int64_t extent = x.dim(static_cast<int>(axes[i])), more = shape[i] - extent;
    if (more < 0) x = Slice(x, axes[i], -more / 2, shape[i]);
    if (more > 0) {
      pads[axes[i]] = more / 2;
      pads[axes[i] + rank] = more - more / 2;
    }
  }
  const bool padded = std::any_of(pads.begin(), pads.end(), [](int64_t p) { return p > 0; });
  return One(padded && x ? c.b().Op("Pad", {x}, {{"pads", pads}, {"value", 0.0}}) : x);
}

}  // namespace

std::span<const OnnxOp> GeometryImports() {
  static constexpr OnnxOp ops[] = {
      {"", "MaxUnpool", 2, 3, ImportMaxUnpool, {.extents_input = 2}},
      {"", "Col2Im", 3, 3, ImportCol2Im},
      {"", "CenterCropPad", 2, 2, ImportCenterCropPad, {.extents_input = 1}},
  };
  return ops;
}

}  // namespace onnxtrain
