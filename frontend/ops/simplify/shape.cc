// Simplifies shapes and data movement.
#include <algorithm>
#include <array>

#include "frontend/ops/simplify/simplify.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

bool AllAre(const Ints& values, int64_t value) {
  return std::ranges::all_of(values, [&](int64_t v) { return v == value; });
}

Val SameType(const SimplifyContext& s) { return s.in[0].type() == s.out ? s.in[0] : Val(); }

Val ReshapeOfReshape(const SimplifyContext& s) { return Reshape(MatchInput(s.in[0], "Reshape"), s.out.shape); }

Val TransposeOfNothing(const SimplifyContext& s) {
  const Ints perm = s.attrs().Ints("perm");
  return std::ranges::is_sorted(perm) ? s.in[0] : Val();
}

Val TransposeOfTranspose(const SimplifyContext& s) {
  const Val x = MatchInput(s.in[0], "Transpose");
  if (!x) return Val();
  const Ints inner = ProducerAttrs(s.in[0]).Ints("perm");
  Ints perm = s.attrs().Ints("perm");
  for (int64_t& axis : perm) axis = inner[axis];
  return Transpose(x, perm);
}

// Returns the number of consecutive axes of `whole` that each axis of `merged` combines. Empty if an axis of `merged`
// is not a product of axes of `whole`.
Ints MergedAxes(const Shape& whole, const Shape& merged) {
  Ints counts;
  size_t at = 0;
  for (int64_t extent : merged) {
    const size_t first = at;
    int64_t product = 1;
    for (; at < whole.size() && (at == first || product < extent); ++at) product *= whole[at];
    if (product != extent) return {};
    counts.push_back(static_cast<int64_t>(at - first));
  }
  return at == whole.size() ? counts : Ints();
}

// Rewrites Reshape(Transpose(Reshape(x))) to Transpose(Reshape(x)) if the last Reshape splits axes. Exporters merge
// heads with the batch while they transpose keys.
Val SplitOfTransposedReshape(const SimplifyContext& s) {
  const Val merged = MatchInput(s.in[0], "Transpose");
  if (!MatchInput(merged, "Reshape") || s.out.elements() == 0) return Val();
  const Ints counts = MergedAxes(s.out.shape, s.in[0].shape());
  if (counts.empty()) return Val();
  const Ints perm = ProducerAttrs(s.in[0]).Ints("perm");
  std::vector<Ints> parts(perm.size());  // by axis of `merged`: axes of the result
  int64_t at = 0;
  for (size_t i = 0; i < perm.size(); ++i) {
    for (int64_t n = 0; n < counts[i]; ++n) parts[perm[i]].push_back(at++);
  }
  Shape split;
  Ints order(at);
  for (const Ints& axes : parts) {
    for (int64_t axis : axes) {
      order[axis] = static_cast<int64_t>(split.size());
      split.push_back(s.out.shape[axis]);
    }
  }
  return Transpose(Reshape(merged, split), order);
}

// Rewrites a transpose that moves only axes of extent 1 to a Reshape.
Val TransposeOfOnes(const SimplifyContext& s) {
  Ints moved;
  for (int64_t axis : s.attrs().Ints("perm")) {
    if (s.in[0].shape()[axis] != 1) moved.push_back(axis);
  }
  return std::ranges::is_sorted(moved) ? Reshape(s.in[0], s.out.shape) : Val();
}

Val ExpandOfExpand(const SimplifyContext& s) {
  const Val x = MatchInput(s.in[0], "Expand");
  return x ? Expand(x, s.out.shape) : Val();
}

// Rewrites the rearrangement of an expanded scalar to an expanded scalar.
Val RearrangeOfSplat(const SimplifyContext& s) {
  const Val x = MatchInput(s.in[0], "Expand");
  return x && x.type().elements() == 1 ? Expand(Reshape(x, {}), s.out.shape) : Val();
}

Val WholeSlice(const SimplifyContext& s) { return AllAre(s.attrs().Ints("steps"), 1) ? SameType(s) : Val(); }

Val SliceOfSlice(const SimplifyContext& s) {
  const Val x = MatchInput(s.in[0], "Slice");
  if (!x || s.out.elements() == 0) return Val();
  const Attrs inner = ProducerAttrs(s.in[0]);
  Ints starts = s.attrs().Ints("starts"), steps = s.attrs().Ints("steps");
  const Ints inner_starts = inner.Ints("starts"), inner_steps = inner.Ints("steps");
  for (size_t i = 0; i < starts.size(); ++i) {
    starts[i] = inner_starts[i] + starts[i] * inner_steps[i];
    steps[i] *= inner_steps[i];
  }
  return s.b.Op("Slice", {x}, {{"starts", starts}, {"sizes", s.out.shape}, {"steps", steps}});
}

// Removes parts without elements, such as an empty cache before the first keys.
Val ConcatOfNothing(const SimplifyContext& s) {
  std::vector<Val> in;
  std::ranges::copy_if(s.in, std::back_inserter(in), [](Val v) { return v.type().elements() > 0; });
  if (in.empty() || in.size() == s.in.size()) return Val();
  return in.size() == 1 ? in[0] : s.b.Op("Concat", in, s.attrs());
}

Val Only(const SimplifyContext& s) { return s.in.size() == 1 ? s.in[0] : Val(); }

// Returns the axis along which two SliceGrads of one tensor are adjacent, a before b, or -1.
int AdjoiningAxis(Val a, Val b, const Attrs& at, const Attrs& bt) {
  if (at.Ints("input_shape") != bt.Ints("input_shape") || !AllAre(at.Ints("steps"), 1) || !AllAre(bt.Ints("steps"), 1))
    return -1;
  const Ints from = at.Ints("starts"), to = bt.Ints("starts");
  int found = -1;
  for (int axis = 0; axis < a.rank(); ++axis) {
    if (from[axis] == to[axis] && a.dim(axis) == b.dim(axis)) continue;
    if (found >= 0 || from[axis] + a.dim(axis) != to[axis]) return -1;
    found = axis;
  }
  return found;
}

}  // namespace

// Concatenates the gradients of adjacent slices of one tensor instead of adding them.
Val AddOfSliceGrads(const SimplifyContext& s) {
  Val a = MatchInput(s.in[0], "SliceGrad"), b = MatchInput(s.in[1], "SliceGrad");
  if (!a || !b || a.dtype() != b.dtype()) return Val();
  Attrs at = ProducerAttrs(s.in[0]), bt = ProducerAttrs(s.in[1]);
  int axis = AdjoiningAxis(a, b, at, bt);
  if (axis < 0) {
    std::swap(a, b);
    std::swap(at, bt);
    axis = AdjoiningAxis(a, b, at, bt);
  }
  return axis < 0 ? Val() : s.b.Op("SliceGrad", {Concat({a, b}, axis)}, at);
}

Val SimplifyReshape(const SimplifyContext& s) {
  return FirstOf<SameType, RearrangeOfSplat, ReshapeOfReshape, SplitOfTransposedReshape>(s);
}
Val SimplifyTranspose(const SimplifyContext& s) {
  return FirstOf<TransposeOfNothing, TransposeOfTranspose, TransposeOfOnes, RearrangeOfSplat>(s);
}
Val SimplifyExpand(const SimplifyContext& s) { return FirstOf<SameType, ExpandOfExpand>(s); }
Val SimplifySlice(const SimplifyContext& s) { return FirstOf<WholeSlice, SliceOfSlice, RearrangeOfSplat>(s); }
Val SimplifySliceGrad(const SimplifyContext& s) { return WholeSlice(s); }
Val SimplifyConcat(const SimplifyContext& s) { return FirstOf<Only, ConcatOfNothing>(s); }
Val SimplifySplit(const SimplifyContext& s) { return Only(s); }

// Sinks a transpose below ArgMax or ArgMin if the other axes keep their order.
Val SimplifyArg(const SimplifyContext& s) {
  const Val x = MatchInput(s.in[0], "Transpose");
  if (!x || s.attrs().Int("keepdims") != 0) return Val();
  Ints kept = ProducerAttrs(s.in[0]).Ints("perm");
  const int64_t axis = kept[s.attrs().Int("axis")];
  std::erase(kept, axis);
  if (!std::ranges::is_sorted(kept)) return Val();
  Attrs attrs = s.attrs();
  attrs.Set("axis", axis);
  return s.b.Op(s.node.op, {x}, attrs);
}

// Removes a reduction over extents of 1.
Val SimplifyReduce(const SimplifyContext& s) {
  return s.in[0].type().elements() == s.out.elements() ? Reshape(s.in[0], s.out.shape) : Val();
}

// Removes an Expand of the mask, which broadcasts anyway.
Val SimplifyAttention(const SimplifyContext& s) {
  std::vector<Val> in = s.in;
  if (in.size() < 4 || !(in[3] = MatchInput(in[3], "Expand"))) return Val();
  return s.Try(in, s.out.shape);
}

Val SimplifyPad(const SimplifyContext& s) { return AllAre(s.attrs().Ints("pads"), 0) ? s.in[0] : Val(); }

}  // namespace onnxtrain
