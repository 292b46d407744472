// Simplification of shapes and data movement.
#include <algorithm>
#include <numeric>

#include "frontend/ops/row.h"
#include "frontend/passes/match.h"

namespace onnxtrain {
namespace {

using Ints = std::vector<int64_t>;

bool AllAre(const Ints& values, int64_t value) {
  return std::ranges::all_of(values, [&](int64_t v) { return v == value; });
}

// --- Views

Val SameType(const NodeContext& s) { return s.in[0].type() == s.out ? s.in[0] : Val(); }

Val ReshapeOfReshape(const NodeContext& s) { return Reshape(MatchInput(s.in[0], "Reshape"), s.out.shape); }

// Casts a value once for several users in different shapes.
Val CastOfReshape(const NodeContext& s) {
  const Val x = MatchInput(s.in[0], "Reshape");
  return x ? Reshape(Cast(x, s.out.dtype), s.out.shape) : Val();
}

Val TransposeOfNothing(const NodeContext& s) {
  const Ints perm = s.attrs().Ints("perm");
  return std::ranges::is_sorted(perm) ? s.in[0] : Val();
}

Val TransposeOfTranspose(const NodeContext& s) {
  const Val x = MatchInput(s.in[0], "Transpose");
  if (!x) return Val();
  const Ints inner = ProducerAttrs(s.in[0]).Ints("perm");
  Ints perm = s.attrs().Ints("perm");
  for (int64_t& axis : perm) axis = inner[axis];
  return Transpose(x, perm);
}

// The number of axes of `whole` that each axis of `merged` is made of, in order; empty if some axis is not.
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

// Reshape(Transpose(Reshape(x))) → Transpose(Reshape(x)) where the last Reshape splits axes: heads that are merged with
// the batch while keys are transposed.
Val SplitOfTransposedReshape(const NodeContext& s) {
  const Val merged = MatchInput(s.in[0], "Transpose");
  if (!MatchInput(merged, "Reshape") || s.out.elements() == 0) return Val();
  const Ints counts = MergedAxes(s.out.shape, s.in[0].shape());
  if (counts.empty()) return Val();
  const Ints perm = ProducerAttrs(s.in[0]).Ints("perm");
  std::vector<Ints> parts(perm.size());  // of each axis of `merged`: axes of the result
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

// A transpose that moves only axes of extent 1 is a Reshape.
Val TransposeOfOnes(const NodeContext& s) {
  Ints moved;
  for (int64_t axis : s.attrs().Ints("perm")) {
    if (s.in[0].shape()[axis] != 1) moved.push_back(axis);
  }
  return std::ranges::is_sorted(moved) ? Reshape(s.in[0], s.out.shape) : Val();
}

// Sinks a transpose below ArgMax or ArgMin if the other axes keep their order.
Val ArgOfTranspose(const NodeContext& s) {
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

// Folds a transpose of the last two axes into the product. A permutation that makes the last axis the second to last is
// such a transpose after one that keeps the last axis.
Val TransposedOperand(const NodeContext& s) {
  std::array<Val, 2> operands = {s.in[0], s.in[1]};
  std::array<bool, 2> swapped = {s.attrs().Int("trans_a") != 0, s.attrs().Int("trans_b") != 0};
  bool any = false;
  for (size_t i = 0; i < 2; ++i) {
    const Val x = MatchInput(operands[i], "Transpose");
    if (!x) continue;
    Ints perm = ProducerAttrs(operands[i]).Ints("perm");
    const auto rank = static_cast<int64_t>(perm.size());
    if (rank < 2 || perm[rank - 2] != rank - 1) continue;
    std::swap(perm[rank - 2], perm[rank - 1]);
    operands[i] = Transpose(x, perm);
    swapped[i] = !swapped[i];
    any = true;
  }
  return any ? MatMul(operands[0], operands[1], swapped[0], swapped[1]) : Val();
}

// Removes a reduction over extents of 1.
Val ReduceNothing(const NodeContext& s) {
  return s.in[0].type().elements() == s.out.elements() ? Reshape(s.in[0], s.out.shape) : Val();
}

// --- Expand

Val ExpandOfExpand(const NodeContext& s) {
  const Val x = MatchInput(s.in[0], "Expand");
  return x ? Expand(x, s.out.shape) : Val();
}

// An expanded scalar stays an expanded scalar when it is rearranged.
Val RearrangeOfSplat(const NodeContext& s) {
  const Val x = MatchInput(s.in[0], "Expand");
  return x && x.type().elements() == 1 ? Expand(Reshape(x, {}), s.out.shape) : Val();
}

// Returns the node's operator on other operands, or an invalid Val if its row rejects them or infers another shape:
// some elementwise operators do not broadcast.
Val TryOp(const NodeContext& s, const std::vector<Val>& in, const Shape& shape) {
  std::vector<const Type*> types;
  for (Val v : in) types.push_back(v ? &v.type() : nullptr);
  Attrs attrs = s.attrs();
  const auto inferred = InferTypes(s.node.op, types, attrs);
  return inferred.ok() && inferred->front() == Type{s.out.dtype, shape} ? s.b.Op(s.node.op, in, s.attrs()) : Val();
}

bool ReadsExpand(const NodeContext& s) {
  return std::ranges::any_of(s.in, [](Val v) { return MatchInput(v, "Expand").valid(); });
}

// Removes an Expand before elementwise operators, which broadcast.
Val ElementwiseOfExpand(const NodeContext& s) {
  if (s.in.size() < 2 || !ReadsExpand(s)) return Val();
  const OpRow* row = FindOp(s.node.op);
  if (row == nullptr || !row->elementwise) return Val();
  for (size_t i = 0; i < s.in.size(); ++i) {
    const Val x = MatchInput(s.in[i], "Expand");
    if (!x) continue;
    Shape shape = x.shape();
    for (size_t k = 0; k < s.in.size(); ++k) {
      if (k == i) continue;
      if (!s.in[k].valid()) return Val();
      const auto both = BroadcastShapes(shape, s.in[k].shape());
      if (!both.has_value()) return Val();
      shape = *both;
    }
    if (shape != s.out.shape) continue;
    std::vector<Val> in = s.in;
    in[i] = x;
    if (const Val y = TryOp(s, in, s.out.shape)) return y;
  }
  return Val();
}

// Masks broadcast.
Val AttentionOfExpandedMask(const NodeContext& s) {
  std::vector<Val> in = s.in;
  if (in.size() < 4 || !(in[3] = MatchInput(in[3], "Expand"))) return Val();
  return TryOp(s, in, s.out.shape);
}

// f(Expand(x)) → Expand(f(x)), also if the other operands are scalars: computes f on fewer elements.
Val ExpandOfElementwise(const NodeContext& s) {
  if (!ReadsExpand(s)) return Val();
  const OpRow* row = FindOp(s.node.op);
  if (row == nullptr || !row->elementwise) return Val();
  std::vector<Val> in = s.in;
  Shape shape;
  bool any = false;
  for (Val& v : in) {
    if (!v.valid()) return Val();
    if (v.type().elements() == 1 && v.rank() <= 1) continue;
    const Val x = MatchInput(v, "Expand");
    if (!x || any) return Val();
    v = x;
    shape = x.shape();
    any = true;
  }
  return any ? s.Fit(TryOp(s, in, shape)) : Val();
}

// --- Parts

Val WholeSlice(const NodeContext& s) { return AllAre(s.attrs().Ints("steps"), 1) ? SameType(s) : Val(); }

Val SliceOfSlice(const NodeContext& s) {
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

Val PadOfNothing(const NodeContext& s) { return AllAre(s.attrs().Ints("pads"), 0) ? s.in[0] : Val(); }

// Removes parts without elements, such as an empty cache before the first keys.
Val ConcatOfNothing(const NodeContext& s) {
  std::vector<Val> in;
  std::ranges::copy_if(s.in, std::back_inserter(in), [](Val v) { return v.type().elements() > 0; });
  if (in.empty() || in.size() == s.in.size()) return Val();
  return in.size() == 1 ? in[0] : s.b.Op("Concat", in, s.attrs());
}

Val Only(const NodeContext& s) { return s.in.size() == 1 ? s.in[0] : Val(); }

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

// Concatenates the gradients of adjacent slices of one tensor instead of adding them.
Val AddOfSliceGrads(const NodeContext& s) {
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

}  // namespace

std::span<const Rule> ShapeRules() {
  static constexpr Rule kRules[] = {
      {"Reshape", SameType},
      {"Reshape", RearrangeOfSplat},
      {"Reshape", ReshapeOfReshape},
      {"Reshape", SplitOfTransposedReshape},
      {"Cast", CastOfReshape},
      {"Transpose", TransposeOfNothing},
      {"Transpose", TransposeOfTranspose},
      {"Transpose", TransposeOfOnes},
      {"Transpose", RearrangeOfSplat},
      {"MatMul", TransposedOperand},
      {"ArgMax", ArgOfTranspose},
      {"ArgMin", ArgOfTranspose},
      {"ReduceSum", ReduceNothing},
      {"ReduceMean", ReduceNothing},
      {"ReduceMax", ReduceNothing},
      {"ReduceMin", ReduceNothing},
      {"ReduceProd", ReduceNothing},
      {"Expand", SameType},
      {"Expand", ExpandOfExpand},
      {"Attention", AttentionOfExpandedMask},
      {"", ElementwiseOfExpand},
      {"", ExpandOfElementwise},
      {"Slice", WholeSlice},
      {"Slice", SliceOfSlice},
      {"Slice", RearrangeOfSplat},
      {"SliceGrad", WholeSlice},
      {"Add", AddOfSliceGrads},
      {"Pad", PadOfNothing},
      {"Concat", Only},
      {"Concat", ConcatOfNothing},
      {"Split", Only},
  };
  return kRules;
}

}  // namespace onnxtrain
