// Imports Concat, Split, Slice and Pad of all versions.
#include <algorithm>
#include <limits>

#include "frontend/base/status.h"
#include "frontend/ops/import/import_util.h"
#include "frontend/ops/import/shape.h"
#include "frontend/ops/rules.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

// Imports Concat. `axis` is required since opset 4; before, its default is 1.
ImportOr ImportConcat(ImportContext& c) {
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, 1, c.in(0).rank()));
  if (c.num_inputs() == 1) return One(c.in(0));
  return One(c.b().Op("Concat", c.node().inputs, {{"axis", axis}}));
}

// Returns the extents of equal parts. Since opset 18, the last part may be smaller (`uneven`).
absl::StatusOr<Ints> EqualParts(int64_t extent, int64_t parts, bool uneven) {
  if (parts < 1) return Invalid("splits into ", parts, " parts");
  if (extent % parts != 0 && !uneven)
    return Invalid("an extent of ", extent, " does not split into ", parts, " equal parts");
  const int64_t part = extent / parts + (extent % parts != 0);
  Ints sizes(parts, part);
  for (int64_t& size : sizes) {
    size = std::min(size, extent);
    extent -= size;
  }
  return sizes;
}

ImportOr ImportSplit(ImportContext& c) {
  const Val x = c.in(0);
  ASSIGN_OR_RETURN(const int64_t axis, ReadAxis(c, 0, x.rank()));
  const int64_t parts = c.node().num_outputs;
  ASSIGN_OR_RETURN(Ints sizes, c.IntsFromAttrOrInput("split", 1, {}));
  if (sizes.empty()) {
    if (c.attrs().Int("num_outputs", parts) != parts) {
      return Invalid("num_outputs is ", c.attrs().Int("num_outputs"), ", but ", parts, " outputs are listed");
    }
    const int64_t extent = x.dim(static_cast<int>(axis));
    ASSIGN_OR_RETURN(sizes, EqualParts(extent, parts, c.since(18, true, parts > 0 && extent % parts == 0)));
  }
  if (static_cast<int64_t>(sizes.size()) != parts) return Invalid(sizes.size(), " sizes for ", parts, " outputs");
  return c.b().Ops("Split", {x}, {{"axis", axis}, {"sizes", std::move(sizes)}, {"num_outputs", parts}});
}

struct Range {
  int64_t start, size, step;
};

// Resolves numpy's x[start:end:step] for an extent d, including ends of ±INT64_MAX, negative steps and empty results.
Range Resolve(int64_t start, int64_t end, int64_t step, int64_t d) {
  if (d == 0) return {0, 0, 1};
  // A step of d or more selects one element, like d.
  step = std::clamp(step, -d, d);
  if (start < 0) start += d;
  if (end < 0) end += d;
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, d);
    end = std::clamp<int64_t>(end, 0, d);
    return {start, std::max<int64_t>(0, (end - start + step - 1) / step), step};
  }
  start = std::clamp<int64_t>(start, 0, d - 1);
  end = std::clamp<int64_t>(end, -1, d - 1);
  return {start, std::max<int64_t>(0, (start - end - step - 1) / -step), step};
}

// Slices x by one range per axis.
ImportOr SliceTo(Val x, const std::vector<Range>& ranges) {
  Ints starts, sizes, steps;
  bool whole = true;
  for (size_t i = 0; i < ranges.size(); ++i) {
    starts.push_back(ranges[i].start);
    sizes.push_back(ranges[i].size);
    steps.push_back(ranges[i].step);
    whole = whole && ranges[i].size == x.shape()[i] && (ranges[i].step == 1 || ranges[i].size < 2);
  }
  if (whole || !x.valid()) return One(x);
  return One(x.b().Op("Slice", {x},
                      {{"starts", std::move(starts)}, {"sizes", std::move(sizes)}, {"steps", std::move(steps)}}));
}

std::vector<Range> WholeRanges(const Shape& shape) {
  std::vector<Range> ranges;
  for (int64_t d : shape) ranges.push_back({0, d, 1});
  return ranges;
}

// Returns the axes in input `input`, by default 0, 1, … for `count` axes.
absl::StatusOr<Ints> AxesOrLeading(ImportContext& c, size_t input, size_t count) {
  Ints axes;
  for (size_t i = 0; i < count; ++i) axes.push_back(static_cast<int64_t>(i));
  ASSIGN_OR_RETURN(axes, c.IntsFromAttrOrInput("axes", input, axes));
  ASSIGN_OR_RETURN(axes, NormalizeAxes(std::move(axes), c.in(0).rank()));
  if (axes.size() != count) return Invalid(axes.size(), " axes, but ", count, " ranges");
  return axes;
}

// Imports Slice, whose arguments are attributes before opset 10 and inputs since.
ImportOr ImportSlice(ImportContext& c) {
  ASSIGN_OR_RETURN(const Ints starts, c.IntsFromAttrOrInput("starts", 1, {}));
  ASSIGN_OR_RETURN(const Ints ends, c.IntsFromAttrOrInput("ends", 2, {}));
  ASSIGN_OR_RETURN(const Ints axes, AxesOrLeading(c, 3, starts.size()));
  ASSIGN_OR_RETURN(const Ints steps, c.IntsFromAttrOrInput("steps", 4, Ints(starts.size(), 1)));
  if (ends.size() != starts.size() || steps.size() != starts.size()) {
    return Invalid(starts.size(), " starts, ", ends.size(), " ends and ", steps.size(), " steps");
  }
  std::vector<Range> ranges = WholeRanges(c.in(0).shape());
  for (size_t i = 0; i < starts.size(); ++i) {
    if (steps[i] == 0) return Invalid("a step is 0");
    ranges[axes[i]] = Resolve(starts[i], ends[i], steps[i], c.in(0).shape()[axes[i]]);
  }
  return SliceTo(c.in(0), ranges);
}

// Maps position i, in [−begin, d + end), of a padded axis to an element of its extent d.
using PadMode = int64_t (*)(int64_t i, int64_t d);

int64_t Modulo(int64_t a, int64_t b) { return ((a % b) + b) % b; }
int64_t Edge(int64_t i, int64_t d) { return std::clamp<int64_t>(i, 0, d - 1); }
int64_t Wrap(int64_t i, int64_t d) { return Modulo(i, d); }
int64_t Reflect(int64_t i, int64_t d) {  // … 2 1 | 0 1 2 … d−1 | d−2 …
  if (d == 1) return 0;
  const int64_t k = Modulo(i, 2 * (d - 1));
  return k < d ? k : 2 * (d - 1) - k;
}

struct NamedMode {
  std::string_view name;
  PadMode mode;  // null: constant
};
constexpr NamedMode kPadModes[] = {{"constant", nullptr}, {"edge", Edge}, {"wrap", Wrap}, {"reflect", Reflect}};

// Returns the pads of all axes, begins then ends. Limits them so that sums cannot overflow.
absl::StatusOr<Ints> ReadPads(ImportContext& c) {
  const size_t rank = c.in(0).rank();
  ASSIGN_OR_RETURN(Ints given, c.IntsFromAttrOrInput("pads", 1, c.attrs().Ints("paddings")));
  if (given.size() % 2 != 0) return Invalid("an odd number of pads: ", given.size());
  const size_t n = given.size() / 2;
  ASSIGN_OR_RETURN(const Ints axes, AxesOrLeading(c, 3, n));
  if (n != rank && !c.has(3)) return Invalid(given.size(), " pads for ", ToString(c.in(0).type()));
  Ints pads(2 * rank, 0);
  for (size_t i = 0; i < 2 * n; ++i) {
    constexpr int64_t kMax = int64_t{1} << 40;
    if (given[i] > kMax || given[i] < -kMax) return Invalid("a pad of ", given[i], " is out of range");
    pads[axes[i % n] + (i < n ? 0 : rank)] = given[i];
  }
  return pads;
}

// Applies negative pads as slices and sets them to 0.
absl::StatusOr<Val> CropNegative(Val x, Ints* pads) {
  const int rank = x.rank();
  std::vector<Range> ranges = WholeRanges(x.shape());
  for (int i = 0; i < rank; ++i) {
    const int64_t begin = std::max<int64_t>(0, -(*pads)[i]), end = std::max<int64_t>(0, -(*pads)[i + rank]);
    ranges[i] = {begin, x.dim(i) - begin - end, 1};
    if (ranges[i].size < 0) return Invalid("pads ", ToString(*pads), " cut more off than ", ToString(x.type()), " has");
  }
  for (int64_t& pad : *pads) pad = std::max<int64_t>(0, pad);
  ASSIGN_OR_RETURN(const std::vector<Val> cropped, SliceTo(x, ranges));
  return cropped[0];
}

ImportOr PadByGather(Val x, const Ints& pads, PadMode mode) {
  for (int axis = 0; axis < x.rank(); ++axis) {
    const int64_t d = x.dim(axis), begin = pads[axis], end = pads[axis + x.rank()];
    if (begin == 0 && end == 0) continue;
    if (d == 0) return Invalid("axis ", axis, " is empty and cannot be padded from its own elements");
    RETURN_IF_ERROR(CheckHostConstant({DType::kInt64, {d + begin + end}}));
    Ints index;
    for (int64_t i = -begin; i < d + end; ++i) index.push_back(mode(i, d));
    x = GatherConstant(x, index, axis);
    if (!x.valid()) break;
  }
  return One(x);
}

ImportOr ImportPad(ImportContext& c) {
  const std::string name = c.attrs().String("mode", "constant");
  const auto* mode =
      std::find_if(std::begin(kPadModes), std::end(kPadModes), [&](const NamedMode& m) { return m.name == name; });
  if (mode == std::end(kPadModes)) return Invalid("unknown mode '", name, "'");
  ASSIGN_OR_RETURN(Ints pads, ReadPads(c));
  ASSIGN_OR_RETURN(const Val x, CropNegative(c.in(0), &pads));
  if (std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; })) return One(x);
  if (mode->mode != nullptr) return PadByGather(x, pads, mode->mode);
  double value = c.attrs().Float("value");
  if (c.has(2)) {
    ASSIGN_OR_RETURN(value, KnownDouble(c, 2, "constant_value"));
  }
  return One(c.b().Op("Pad", {x}, {{"pads", std::move(pads)}, {"value", value}}));
}

}  // namespace

std::span<const OnnxOp> SlicingImports() {
  static const OnnxOp ops[] = {
      {"", "Concat", 1, Arity::kMany, ImportConcat, {.moves = true}},
      {"", "Split", 1, 2, ImportSplit, {.moves = true}},
      {"", "Slice", 1, 5, ImportSlice, {.moves = true}},
      {"", "Pad", 1, 4, ImportPad, {.takes_numbers = true}},
  };
  return ops;
}

}  // namespace onnxtrain
