#include "frontend/ops/import/shape.h"

#include <algorithm>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/import/import_util.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// 0 copies an extent (unless allowzero), −1 stands for what is left.
absl::StatusOr<Shape> ResolveShape(const Shape& x, Ints wanted, bool allow_zero) {
  int64_t open = -1;
  Shape known;  // all but the open one
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
  RETURN_IF_ERROR(CheckShape(Shape(rank, 1)));  // bounds the rank
  ASSIGN_OR_RETURN(axes, NormalizeAxes(std::move(axes), rank));
  Shape shape;
  size_t next = 0;
  for (int64_t i = 0; i < rank; ++i) {
    const bool added = std::find(axes.begin(), axes.end(), i) != axes.end();
    shape.push_back(added ? 1 : c.in(0).shape()[next++]);
  }
  return One(Reshape(c.in(0), std::move(shape)));
}

// PyTorch's older exporter counts axes from the end where the program does.
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

// [d] → [1, d] → [r, d] → [r·d] along each repeated axis.
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

// Opset 1 repeated one axis: inputs tiles and axis.
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

// The block size of [N, C, H, W], at most 2^20 so that its square is safe.
absl::StatusOr<int64_t> BlockSize(ImportContext& c) {
  const int64_t b = c.attrs().Int("blocksize");
  if (c.in(0).rank() != 4) return Invalid("expected a tensor of rank 4, got ", ToString(c.in(0).type()));
  if (b < 1 || b > (1 << 20)) return Invalid("blocksize ", b, " is out of range");
  return b;
}

// Is a channel of blocks (depth, row, column), and not (row, column, depth)?
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

}  // namespace onnxtrain
