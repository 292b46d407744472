// Imports operators that sample at computed positions: GridSample, AffineGrid, RoiAlign, CropAndResize, DeformConv.
#include <algorithm>
#include <map>

#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

Val AsFloat(Val x, DType dtype) { return Cast(x, IsFloat(dtype) ? dtype : DType::kFloat32); }

absl::StatusOr<std::string> ReadSampleMode(const Attrs& attrs) {
  static const std::map<std::string, std::string, std::less<>> modes = {
      {"bilinear", "linear"}, {"linear", "linear"}, {"nearest", "nearest"}, {"bicubic", "cubic"}, {"cubic", "cubic"}};
  const std::string name = attrs.String("mode", "linear");
  const auto it = modes.find(name);
  if (it == modes.end()) return Invalid("mode '", name, "' is none of linear, nearest, cubic");
  return it->second;
}

// Reshapes a sequence [N,C,W] and its grid [N,W',1] to an image of one row, sampled at the middle of the row.
void OneRow(Val* x, Val* grid) {
  *x = Reshape(*x, {x->dim(0), x->dim(1), 1, x->dim(2)});
  const Val row = Reshape(*grid, {grid->dim(0), 1, grid->dim(1), 1});
  *grid = Concat({row, ZerosLike(row)}, 3);
}

ImportOr ImportGridSample(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  const DType dtype = c.in(0).dtype();
  if (c.in(0).rank() < 3 || c.in(1).rank() != c.in(0).rank() || !IsFloat(c.in(1).dtype())) {
    return Invalid("cannot sample ", ToString(c.in(0).type()), " on a grid ", ToString(c.in(1).type()));
  }
  ASSIGN_OR_RETURN(const std::string mode, ReadSampleMode(c.attrs()));
  Val x = AsFloat(c.in(0), dtype), grid = Cast(c.in(1), x.dtype());
  const bool flat = x.rank() == 3;
  if (flat && grid.dim(2) != 1)
    return Invalid("cannot sample ", ToString(x.type()), " on a grid ", ToString(grid.type()));
  if (flat) OneRow(&x, &grid);
  const std::string padding = c.attrs().String("padding_mode", "zeros");
  const Attrs attrs = {
      {"mode", mode}, {"padding_mode", padding}, {"align_corners", int64_t{c.attrs().Int("align_corners") != 0}}};
  if (x.rank() == 5 && mode == "cubic") {
    if (padding != "zeros" && padding != "border" && padding != "reflection")
      return Invalid("padding_mode '", padding, "' is none of zeros, border, reflection");
    ASSIGN_OR_RETURN(const Val y, SampleCubicVolume(x, grid, SampleSpec::FromAttrs(attrs)));
    return One(Cast(y, dtype));
  }
  const Val y = c.b().Op("GridSample", {x, grid}, attrs);
  RETURN_IF_ERROR(c.b().status());
  return One(Cast(flat ? Reshape(y, {y.dim(0), y.dim(1), y.dim(3)}) : y, dtype));
}

// Returns the coordinate of element i of n in −1 … 1. With align_corners, the first and last elements are at ±1;
// otherwise, these are the outer edges of the first and last elements.
double GridCoordinate(int64_t i, int64_t n, bool align_corners) {
  const auto at = static_cast<double>(i), extent = static_cast<double>(n);
  if (!align_corners) return (2 * at + 1) / extent - 1;
  return n == 1 ? 0 : 2 * at / (extent - 1) - 1;
}

// Returns homogeneous coordinates (x, y[, z], 1), innermost axis first, as [Π spatial, r+1].
absl::StatusOr<Val> HomogeneousGrid(Builder& b, DType dtype, const Shape& spatial, bool align_corners) {
  RETURN_IF_ERROR(CheckShape(spatial));
  const auto axes = static_cast<int64_t>(spatial.size());
  const Type type = {dtype, {NumElements(spatial), axes + 1}};
  RETURN_IF_ERROR(CheckHostConstant(type));
  HostTensor grid = HostTensor::Filled(type, 1);
  for (int64_t i = 0; i < type.shape[0]; ++i) {
    int64_t rest = i;
    for (int64_t a = axes; a-- > 0; rest /= spatial[a]) {
      grid.Set(i * (axes + 1) + axes - 1 - a, GridCoordinate(rest % spatial[a], spatial[a], align_corners));
    }
  }
  return b.Constant(grid);
}

ImportOr ImportAffineGrid(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 2));
  const Val theta = c.in(0);
  ASSIGN_OR_RETURN(const std::vector<int64_t> size, c.KnownInts(1, "size"));
  const auto axes = static_cast<int64_t>(size.size()) - 2;
  if ((axes != 2 && axes != 3) || theta.rank() != 3 || theta.shape() != Shape{size[0], axes, axes + 1} ||
      !IsFloat(theta.dtype())) {
    return Invalid("transformations ", ToString(theta.type()), " do not fit to the size ", ToString(size));
  }
  const Shape spatial(size.begin() + 2, size.end());
  ASSIGN_OR_RETURN(const Val base, HomogeneousGrid(c.b(), theta.dtype(), spatial, c.attrs().Int("align_corners") != 0));
  Shape shape = {size[0]};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  shape.push_back(axes);
  return One(Reshape(MatMul(base, theta, false, true), shape));
}

// Imports RoiAlign, which moves regions by half a pixel by default only since opset 16.
ImportOr ImportRoiAlign(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 3));
  const Attrs& a = c.attrs();
  const std::string coordinates = a.Has("coordinate_transformation_mode")
                                      ? a.String("coordinate_transformation_mode")
                                      : c.since<std::string>(16, "half_pixel", "output_half_pixel");
  if (coordinates != "half_pixel" && coordinates != "output_half_pixel") {
    return Invalid("coordinate_transformation_mode '", coordinates, "' is neither half_pixel nor output_half_pixel");
  }
  const Attrs attrs = {{"mode", a.String("mode", "avg")},
                       {"output_height", a.Int("output_height", 1)},
                       {"output_width", a.Int("output_width", 1)},
                       {"sampling_ratio", a.Int("sampling_ratio", 0)},
                       {"spatial_scale", a.Float("spatial_scale", 1)},
                       {"half_pixel", int64_t{coordinates == "half_pixel"}}};
  return One(c.b().Op("RoiAlign", {c.in(0), Cast(c.in(1), c.in(0).dtype()), Cast(c.in(2), DType::kInt64)}, attrs));
}

// Returns `bins` positions [R, bins], evenly spaced from begin to end ([R] each). Positions are relative: 0 is the
// first element of the axis, 1 the last.
Val CropShares(Val begin, Val end, int64_t bins) {
  HostTensor share({begin.dtype(), {1, bins}});
  for (int64_t i = 0; i < bins; ++i) {
    share.Set(i, bins == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(bins - 1));
  }
  const Val t = begin.b().Constant(share);
  const Val from = Reshape(begin, {begin.dim(0), 1}), to = Reshape(end, {end.dim(0), 1});
  return from + (to - from) * t;
}

// Converts relative positions along an axis of n elements to grid coordinates. For `nearest`, rounds ties up, unlike
// GridSample, which rounds them to even.
Val CropGrid(Val share, int64_t n, bool nearest) {
  if (!nearest) return share * 2.0 - 1.0;
  const double steps = static_cast<double>(std::max<int64_t>(n - 1, 1));
  return Unary("Floor", share * steps + 0.5) * (2 / steps) - 1.0;
}

// Returns a mask of the relative positions within the image.
Val Within(Val share) {
  return Binary("And", Binary("GreaterOrEqual", share, Number(share, 0)),
                Binary("LessOrEqual", share, Number(share, 1)));
}

// Imports CropAndResize (com.microsoft), which resizes regions (y1, x1, y2, x2) of images to one size. Elements outside
// the image are `extrapolation_value`.
ImportOr ImportCropAndResize(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 4));
  const Val x = c.in(0), rois = c.in(1);
  ASSIGN_OR_RETURN(const std::vector<int64_t> size, c.KnownInts(3, "crop_size"));
  const std::string mode = c.attrs().String("mode", "bilinear");
  if (mode != "bilinear" && mode != "nearest") return Invalid("mode '", mode, "' is neither bilinear nor nearest");
  if (x.rank() != 4 || !IsFloat(x.dtype()) || rois.rank() != 2 || rois.dim(1) != 4 || rois.dtype() != x.dtype() ||
      c.in(2).shape() != Shape{rois.dim(0)} || !IsInteger(c.in(2).dtype())) {
    return Invalid("cannot crop ", ToString(x.type()), " to ", ToString(rois.type()), " of ", ToString(c.in(2).type()));
  }
  if (size.size() != 2 || size[0] < 1 || size[1] < 1)
    return Invalid("crop_size ", ToString(size), " should be two extents");
  RETURN_IF_ERROR(CheckHostConstant({x.dtype(), {size[0]}}));
  RETURN_IF_ERROR(CheckHostConstant({x.dtype(), {size[1]}}));
  const int64_t regions = rois.dim(0);
  const auto side = [&](int64_t i) { return Reshape(Slice(rois, 1, i, 1), {regions}); };
  const Shape grid = {regions, size[0], size[1], 1}, mask = {regions, 1, size[0], size[1]};
  const Val vertical = Reshape(CropShares(side(0), side(2), size[0]), {regions, size[0], 1, 1});
  const Val horizontal = Reshape(CropShares(side(1), side(3), size[1]), {regions, 1, size[1], 1});
  const bool nearest = mode == "nearest";
  const Val row = CropGrid(vertical, x.dim(2), nearest), column = CropGrid(horizontal, x.dim(3), nearest);
  const Val images = c.b().Op("Gather", {x, Cast(c.in(2), DType::kInt64)}, {{"axis", int64_t{0}}});
  const Val read = c.b().Op("GridSample", {images, Concat({Expand(column, grid), Expand(row, grid)}, 3)},
                            {{"mode", nearest ? mode : std::string("linear")},
                             {"padding_mode", std::string("border")},
                             {"align_corners", int64_t{1}}});
  const Val inside = Reshape(Binary("And", Expand(Within(horizontal), grid), Expand(Within(vertical), grid)), mask);
  return One(Where(inside, read, Number(read, c.attrs().Float("extrapolation_value"))));
}

struct Deform {
  Windows w;
  Shape in, out;  // spatial extents
  int64_t batch, channels, group, offset_group;

  int64_t axes() const { return static_cast<int64_t>(in.size()); }
  int64_t taps() const { return NumElements(w.kernel); }
  int64_t places() const { return NumElements(out); }
};

absl::Status CheckDeformInputs(ImportContext& c, const Deform& d) {
  const Val weight = c.in(1);
  const Type& offset = c.in(2).type();
  Shape expected = {d.batch, d.offset_group * d.taps() * d.axes()};
  expected.insert(expected.end(), d.out.begin(), d.out.end());
  if (offset.shape != expected) return Invalid("expected offsets ", ToString(expected), ", got ", ToString(offset));
  if (weight.dim(1) * d.group != d.channels || weight.dim(0) % d.group != 0 || d.channels % d.offset_group != 0) {
    return Invalid("weights ", ToString(weight.type()), " in ", d.group, " groups do not fit to ", d.channels,
                   " channels");
  }
  expected[1] = d.offset_group * d.taps();
  if (c.has(4) && c.in(4).shape() != expected)
    return Invalid("expected a mask ", ToString(expected), ", got ", ToString(c.in(4).type()));
  if (c.has(3) && c.in(3).shape() != Shape{weight.dim(0)}) return Invalid("the bias is ", ToString(c.in(3).type()));
  for (size_t i = 0; i < c.num_inputs(); ++i) {
    if (c.has(i) && (!IsFloat(c.in(i).dtype()) || c.in(i).dtype() != c.in(0).dtype()))
      return Invalid("input ", i, " is ", ToString(c.in(i).type()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Deform> ReadDeform(ImportContext& c) {
  RETURN_IF_ERROR(RequireInputs(c, 3));
  RETURN_IF_ERROR(RequireSpatial(c));
  const Val x = c.in(0), weight = c.in(1);
  if (x.rank() < 4 || weight.rank() != x.rank())
    return Unsupported(StrCat("a deformable convolution of ", ToString(x.type()), " by ", ToString(weight.type())));
  const auto in = Spatial(x.shape()), kernel = Spatial(weight.shape());
  Deform d{.in = {in.begin(), in.end()},
           .batch = x.dim(0),
           .channels = x.dim(1),
           .group = c.attrs().Int("group", 1),
           .offset_group = c.attrs().Int("offset_group", 1)};
  const Shape shape(kernel.begin(), kernel.end());
  if (c.attrs().Ints("kernel_shape", shape) != shape)
    return Invalid("kernel_shape is not that of the weights ", ToString(weight.type()));
  constexpr int64_t kMax = 1 << 20;
  if (d.group < 1 || d.offset_group < 1 || d.group > kMax || d.offset_group > kMax || weight.dim(1) > kMax ||
      NumElements(x.shape()) == 0) {
    return Invalid("cannot convolve ", ToString(x.type()), " in ", d.group, " groups with offsets in ", d.offset_group);
  }
  ASSIGN_OR_RETURN(d.w, ImportWindows(c.attrs(), shape, in));
  ASSIGN_OR_RETURN(d.out, WindowCounts(d.w, in));
  RETURN_IF_ERROR(CheckShape(d.w.kernel));
  RETURN_IF_ERROR(CheckHostConstant({DType::kFloat64, {d.taps(), d.axes(), 1}}));
  RETURN_IF_ERROR(CheckDeformInputs(c, d));
  return d;
}

// Returns the grid coordinates [1, taps, axes, positions] that the undeformed kernel reads.
absl::StatusOr<Val> UndeformedGrid(Builder& b, DType dtype, const Deform& d) {
  const Type type = {dtype, {1, d.taps(), d.axes(), d.places()}};
  RETURN_IF_ERROR(CheckHostConstant(type));
  HostTensor grid(type);
  for (int64_t i = 0; i < grid.size(); ++i) {
    const int64_t axis = i / d.places() % d.axes();
    int64_t place = i % d.places(), tap = i / d.places() / d.axes();
    for (int64_t a = d.axes() - 1; a > axis; --a) {
      place /= d.out[a];
      tap /= d.w.kernel[a];
    }
    const int64_t at =
        place % d.out[axis] * d.w.strides[axis] - d.w.pads[axis] + tap % d.w.kernel[axis] * d.w.dilations[axis];
    grid.Set(i, GridCoordinate(at, d.in[axis], false));
  }
  return b.Constant(grid);
}

// Returns the factor from elements to grid coordinates, [1, 1, axes, 1].
Val PerElement(Builder& b, DType dtype, const Deform& d) {
  HostTensor scale({dtype, {1, 1, d.axes(), 1}});
  for (int64_t a = 0; a < d.axes(); ++a) scale.Set(a, 2.0 / static_cast<double>(d.in[a]));
  return b.Constant(scale);
}

Val Reversed(Val x, int64_t axis) {
  std::vector<int64_t> starts(x.rank(), 0), steps(x.rank(), 1);
  starts[axis] = x.dim(static_cast<int>(axis)) - 1;
  steps[axis] = -1;
  return x.b().Op("Slice", {x}, {{"starts", starts}, {"sizes", x.shape()}, {"steps", steps}});
}

// Returns the elements that the kernel reads, [N, group, channels/group · taps, positions].
absl::StatusOr<Val> DeformedColumns(ImportContext& c, const Deform& d) {
  const DType dtype = c.in(0).dtype();
  const int64_t planes = d.batch * d.offset_group, per_group = d.channels / d.offset_group;
  ASSIGN_OR_RETURN(const Val base, UndeformedGrid(c.b(), dtype, d));
  const Val offset = Reshape(c.in(2), {planes, d.taps(), d.axes(), d.places()});
  const Val grid = Transpose(offset * PerElement(c.b(), dtype, d) + base, {0, 1, 3, 2});
  if (!grid) return c.b().status();
  Shape x = {planes, per_group}, places = {planes, d.taps(), d.places()};
  x.insert(x.end(), d.in.begin(), d.in.end());
  places.resize(1 + d.axes(), 1);
  places.push_back(d.axes());
  const Val columns = c.b().Op("GridSample", {Reshape(c.in(0), x), Reshape(Reversed(grid, 3), places)});
  Val read = Reshape(columns, {planes, per_group, d.taps(), d.places()});
  if (c.has(4)) read = read * Reshape(c.in(4), {planes, 1, d.taps(), d.places()});
  return Reshape(read, {d.batch, d.group, d.channels / d.group * d.taps(), d.places()});
}

// Imports DeformConv of a sequence as an image of one row.
ImportOr DeformSequence(ImportContext& c) {
  const auto one_row = [](Val x) { return Reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2)}); };
  for (size_t i : {1, 2, 4}) {
    if ((i != 4 || c.has(i)) && c.in(i).rank() != 3)
      return Invalid("input ", i, " is ", ToString(c.in(i).type()), " for ", ToString(c.in(0).type()));
  }
  const Val along = one_row(c.in(2));  // [N, offset_group · taps, 1, positions]
  const Val both = Reshape(Concat({ZerosLike(along), along}, 2), {along.dim(0), 2 * along.dim(1), 1, along.dim(3)});
  Attrs attrs = c.attrs();
  for (const auto& [name, first] :
       {std::pair<const char*, int64_t>{"kernel_shape", 1}, {"strides", 1}, {"dilations", 1}, {"pads", 0}}) {
    if (!attrs.Has(name)) continue;
    std::vector<int64_t> wide;
    for (int64_t n : attrs.Ints(name)) wide.insert(wide.end(), {first, n});
    attrs.Set(name, wide);
  }
  ASSIGN_OR_RETURN(const std::vector<Val> y, ImportAs(c, "", "DeformConv",
                                                      {one_row(c.in(0)), one_row(c.in(1)), both,
                                                       c.has(3) ? c.in(3) : Val(), c.has(4) ? one_row(c.in(4)) : Val()},
                                                      attrs));
  return One(Reshape(y[0], {y[0].dim(0), y[0].dim(1), y[0].dim(3)}));
}

ImportOr ImportDeformConv(ImportContext& c) {
  if (c.num_inputs() > 2 && c.has(0) && c.in(0).rank() == 3) return DeformSequence(c);
  ASSIGN_OR_RETURN(const Deform d, ReadDeform(c));
  ASSIGN_OR_RETURN(const Val columns, DeformedColumns(c, d));
  const int64_t outputs = c.in(1).dim(0);
  const Val weight = Reshape(c.in(1), {1, d.group, outputs / d.group, d.channels / d.group * d.taps()});
  Shape shape = {d.batch, outputs};
  shape.insert(shape.end(), d.out.begin(), d.out.end());
  const Val y = Reshape(MatMul(weight, columns), shape);
  if (!y) return c.b().status();
  return One(c.has(3) ? y + UnsqueezeToChannels(c.in(3), y.rank()) : y);
}

}  // namespace

std::span<const OnnxOp> SampleImports() {
  static constexpr OnnxOp ops[] = {
      {"", "GridSample", 2, 2, ImportGridSample},
      {"com.microsoft", "GridSample", 2, 2, ImportGridSample},
      {"com.microsoft", "CropAndResize", 4, 4, ImportCropAndResize},
      {"", "AffineGrid", 2, 2, ImportAffineGrid, {.extents_input = 1}},
      {"", "RoiAlign", 3, 3, ImportRoiAlign},
      {"", "MaxRoiPool", 2, 2, ImportMaxRoiPool},
      {"", "DeformConv", 3, 5, ImportDeformConv},
  };
  return ops;
}

}  // namespace onnxtrain
