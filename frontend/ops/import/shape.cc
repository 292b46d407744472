#include "frontend/ops/import/shape.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/formula.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// Resolves the target of a Reshape: 0 copies an extent (unless allowzero), −1 is inferred.
absl::StatusOr<Shape> ResolveShape(const Shape& x, Ints wanted, bool allow_zero) {
  int64_t open = -1;
  Shape known;  // all extents except the inferred one
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == 0 && !allow_zero) {
      if (i >= x.size())
        return Invalid("extent ", i, " of the new shape copies one that ", ToString(x), " does not have");
      wanted[i] = x[i];
    }
    if (wanted[i] == -1 && open >= 0) return Invalid("shape ", ToString(wanted), " has -1 twice");
    if (wanted[i] == -1) {
      open = static_cast<int64_t>(i);
    } else {
      known.push_back(wanted[i]);
    }
  }
  RETURN_IF_ERROR(CheckShape(known));
  if (open < 0) return wanted;
  const int64_t rest = NumElements(known), total = NumElements(x);
  if (rest == 0 || total % rest != 0) return Invalid("cannot reshape ", ToString(x), " to ", ToString(wanted));
  wanted[open] = total / rest;
  return wanted;
}

ImportOr ImportReshape(ImportContext& c) {
  if (!c.has(1) && !c.attrs().Has("shape")) return Invalid("has no shape");
  ASSIGN_OR_RETURN(Ints wanted, c.IntsFromAttrOrInput("shape", 1, {}));
  ASSIGN_OR_RETURN(Shape shape, ResolveShape(c.in(0).shape(), std::move(wanted), c.attrs().Int("allowzero")));
  return One(Reshape(c.in(0), std::move(shape)));
}

int64_t Product(Shape::const_iterator begin, Shape::const_iterator end) {
  return std::accumulate(begin, end, int64_t{1}, std::multiplies<int64_t>());
}

ImportOr ImportFlatten(ImportContext& c) {
  const Shape& shape = c.in(0).shape();
  const int64_t rank = c.in(0).rank();
  int64_t axis = c.attrs().Int("axis", 1);
  if (axis < -rank || axis > rank) return Invalid("axis ", axis, " is outside a tensor of rank ", rank);
  if (axis < 0) axis += rank;
  return One(
      Reshape(c.in(0), {Product(shape.begin(), shape.begin() + axis), Product(shape.begin() + axis, shape.end())}));
}

ImportOr ImportSqueeze(ImportContext& c) {
  const Shape& shape = c.in(0).shape();
  ASSIGN_OR_RETURN(Ints axes, c.IntsFromAttrOrInput("axes", 1, {}));
  ASSIGN_OR_RETURN(axes, NormalizeAxes(std::move(axes), c.in(0).rank()));
  const bool all = !c.has(1) && !c.attrs().Has("axes");
  Shape squeezed;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool named = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (named && shape[i] != 1) return Invalid("cannot squeeze axis ", i, " of ", ToString(shape));
    if (!named && !(all && shape[i] == 1)) squeezed.push_back(shape[i]);
  }
  return One(Reshape(c.in(0), std::move(squeezed)));
}

ImportOr ImportUnsqueeze(ImportContext& c) {
  ASSIGN_OR_RETURN(Ints axes, c.IntsFromAttrOrInput("axes", 1, {}));
  const int64_t rank = c.in(0).rank() + static_cast<int64_t>(axes.size());
  RETURN_IF_ERROR(CheckShape(Shape(rank, 1)));  // limits the rank
  ASSIGN_OR_RETURN(axes, NormalizeAxes(std::move(axes), rank));
  Shape shape;
  size_t next = 0;
  for (int64_t i = 0; i < rank; ++i) {
    const bool added = std::find(axes.begin(), axes.end(), i) != axes.end();
    shape.push_back(added ? 1 : c.in(0).shape()[next++]);
  }
  return One(Reshape(c.in(0), std::move(shape)));
}

// Imports Transpose. Accepts negative axes, which PyTorch's older exporter writes.
ImportOr ImportTranspose(ImportContext& c) {
  Ints perm(c.in(0).rank());
  std::iota(perm.rbegin(), perm.rend(), 0);
  perm = c.attrs().Ints("perm", perm);
  for (int64_t& axis : perm) axis += axis < 0 ? c.in(0).rank() : 0;
  return One(Transpose(c.in(0), std::move(perm)));
}

ImportOr ImportExpand(ImportContext& c) {
  ASSIGN_OR_RETURN(const Shape wanted, c.KnownInts(1, "shape"));
  RETURN_IF_ERROR(CheckShape(wanted));
  auto shape = BroadcastShapes(c.in(0).shape(), wanted);
  if (!shape.has_value()) return Invalid("cannot broadcast ", ToString(c.in(0).type()), " to ", ToString(wanted));
  return One(Expand(c.in(0), *std::move(shape)));
}

// Repeats x by [d] → [1, d] → [r, d] → [r·d] along each repeated axis.
ImportOr TileBy(Val x, const Ints& repeats) {
  if (repeats.size() != static_cast<size_t>(x.rank())) {
    return Invalid("repeats ", ToString(repeats), " are not one per axis of ", ToString(x.type()));
  }
  Shape split, repeated, tiled;
  for (int i = 0; i < x.rank(); ++i) {
    RETURN_IF_ERROR(CheckShape({repeats[i], x.dim(i)}));
    if (repeats[i] != 1) {
      split.push_back(1);
      repeated.push_back(repeats[i]);
    }
    split.push_back(x.dim(i));
    repeated.push_back(x.dim(i));
    tiled.push_back(repeats[i] * x.dim(i));
  }
  RETURN_IF_ERROR(CheckShape(tiled));
  return One(Reshape(Expand(Reshape(x, std::move(split)), std::move(repeated)), std::move(tiled)));
}

// Imports Tile. In opset 1, it repeats one axis and has the inputs tiles and axis.
ImportOr ImportTile(ImportContext& c) {
  if (!c.has(2)) {
    ASSIGN_OR_RETURN(const Ints repeats, c.KnownInts(1, "repeats"));
    return TileBy(c.in(0), repeats);
  }
  ASSIGN_OR_RETURN(const int64_t tiles, KnownInt(c, 1, "tiles"));
  ASSIGN_OR_RETURN(int64_t axis, KnownInt(c, 2, "axis"));
  ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.in(0).rank()));
  Ints repeats(c.in(0).rank(), 1);
  repeats[axis] = tiles;
  return TileBy(c.in(0), repeats);
}

// Returns the block size for [N, C, H, W], at most 2^20 so that its square cannot overflow.
absl::StatusOr<int64_t> BlockSize(ImportContext& c) {
  const int64_t b = c.attrs().Int("blocksize");
  if (c.in(0).rank() != 4) return Invalid("expected a tensor of rank 4, got ", ToString(c.in(0).type()));
  if (b < 1 || b > (1 << 20)) return Invalid("blocksize ", b, " is out of range");
  return b;
}

// Returns true if the channel axis is ordered (depth, row, column), false for (row, column, depth).
absl::StatusOr<bool> ChannelsFirst(const ImportContext& c) {
  const std::string mode = c.attrs().String("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") return Invalid("unknown mode '", mode, "'");
  return mode == "CRD";
}

ImportOr ImportDepthToSpace(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t b, BlockSize(c));
  ASSIGN_OR_RETURN(const bool channels_first, ChannelsFirst(c));
  const Val x = c.in(0);
  const int64_t n = x.dim(0), channels = x.dim(1), h = x.dim(2), w = x.dim(3), depth = channels / (b * b);
  if (channels % (b * b) != 0) return Invalid(channels, " channels do not split into blocks of ", b, "x", b);
  const Val blocks = channels_first ? Transpose(Reshape(x, {n, depth, b, b, h, w}), {0, 1, 4, 2, 5, 3})
                                    : Transpose(Reshape(x, {n, b, b, depth, h, w}), {0, 3, 4, 1, 5, 2});
  return One(Reshape(blocks, {n, depth, h * b, w * b}));
}

ImportOr ImportSpaceToDepth(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t b, BlockSize(c));
  const Val x = c.in(0);
  const int64_t n = x.dim(0), channels = x.dim(1), h = x.dim(2), w = x.dim(3);
  if (h % b != 0 || w % b != 0) return Invalid(h, "x", w, " does not split into blocks of ", b, "x", b);
  ASSIGN_OR_RETURN(const bool channels_first, ChannelsFirst(c));
  const Ints order = channels_first ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4};
  const Val blocks = Transpose(Reshape(x, {n, channels, h / b, b, w / b, b}), order);
  return One(Reshape(blocks, {n, channels * b * b, h / b, w / b}));
}

}  // namespace

std::span<const OnnxOp> ReshapingImports() {
  static const OnnxOp ops[] = {
      {"", "Reshape", 1, 2, ImportReshape, {.view = true, .extents_input = 1}},
      {"", "Flatten", 1, 1, ImportFlatten, {.view = true}},
      {"", "Squeeze", 1, 2, ImportSqueeze, {.view = true}},
      {"", "Unsqueeze", 1, 2, ImportUnsqueeze, {.view = true}},
      {"", "Transpose", 1, 1, ImportTranspose, {.view = true}},
      {"", "Expand", 2, 2, ImportExpand, {.moves = true, .scalar_weight = true, .extents_input = 1}},
      {"", "Tile", 2, 3, ImportTile, {.moves = true, .extents_input = 1}},
      {"", "DepthToSpace", 1, 1, ImportDepthToSpace},
      {"", "SpaceToDepth", 1, 1, ImportSpaceToDepth},
  };
  return ops;
}

std::span<const OnnxOp> ShapeImports() {
  static const auto* ops = [] {
    auto* all = new std::vector<OnnxOp>;
    for (auto part : {ReshapingImports, SlicingImports, FillingImports}) {
      all->insert(all->end(), part().begin(), part().end());
    }
    return all;
  }();
  return *ops;
}

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

// Imports Shape: extents start … end of the shape, with the indexing rules of Python slices.
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

// Imports ConstantOfShape as an expanded scalar, which is folded to a constant if it is small enough.
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

// Returns a range with ⌈(limit − start)/delta⌉ elements.
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

// Imports Trilu, which keeps the elements on and above (or below) the k-th diagonal of the last two axes.
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
