#include "optim/parallel/tensor/split_rules.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>

#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

// Calls `visit` with the offset in the whole, the offset in the part, and the bytes of each contiguous piece.
void VisitPieces(const Type& whole, const AxisSplit& split, int rank, int ranks,
                 const std::function<void(size_t whole, size_t part, size_t bytes)>& visit) {
  const ElementRuns runs = FindRuns(whole.shape, split, rank, ranks);
  const size_t element = DTypeSize(whole.dtype);
  for (int64_t at = runs.begin, part = 0; at < whole.elements(); at += runs.stride, part += runs.length)
    visit(at * element, part * element, runs.length * element);
}

}  // namespace

bool CanSplit(const Shape& shape, const AxisSplit& split, int ranks) {
  return split.axis < std::ssize(shape) && shape[split.axis] > 0 && shape[split.axis] % (split.blocks * ranks) == 0;
}

Shape PartShape(Shape shape, const AxisSplit& split, int ranks) {
  shape[split.axis] /= ranks;
  return shape;
}

ElementRuns FindRuns(const Shape& shape, const AxisSplit& split, int rank, int ranks) {
  const int64_t inner = NumElements({shape.begin() + split.axis + 1, shape.end()});
  const int64_t length = shape[split.axis] / split.blocks / ranks * inner;
  return {.begin = rank * length, .length = length, .stride = ranks * length};
}

HostTensor TakePart(const HostTensor& whole, const AxisSplit& split, int rank, int ranks) {
  HostTensor part({whole.dtype(), PartShape(whole.shape(), split, ranks)});
  VisitPieces(whole.type(), split, rank, ranks, [&](size_t from, size_t to, size_t bytes) {
    std::memcpy(part.mutable_bytes().data() + to, whole.bytes().data() + from, bytes);
  });
  return part;
}

void PutPart(const HostTensor& part, const AxisSplit& split, int rank, int ranks, HostTensor* whole) {
  VisitPieces(whole->type(), split, rank, ranks, [&](size_t to, size_t from, size_t bytes) {
    std::memcpy(whole->mutable_bytes().data() + to, part.bytes().data() + from, bytes);
  });
}

namespace {

// Axes of operands that have the same name are divided together, as in an einsum.
constexpr int kWhole = -1;

struct AxisNames {
  std::vector<std::vector<int>> inputs, outputs;  // by operand and axis
  bool sums = false;                              // over names that the outputs lack
};

struct NodeContext {
  const Graph& graph;
  const Node& node;
  int ranks;

  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNoValue; }
  const Shape& in(size_t i) const { return graph.type(node.inputs[i]).shape; }
  const Shape& out(size_t i = 0) const { return graph.type(node.outputs[i]).shape; }
  int rank(size_t i) const { return static_cast<int>(in(i).size()); }
};

AxisNames AllWhole(const NodeContext& c) {
  AxisNames names;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) names.inputs.emplace_back(c.has(i) ? c.rank(i) : 0, kWhole);
  for (const ValueId v : c.node.outputs) names.outputs.emplace_back(c.graph.type(v).shape.size(), kWhole);
  return names;
}

// Names the axes of operand `names` of shape `shape` by those of `result` that it broadcasts to.
void NameBroadcast(const Shape& shape, const Shape& result, std::vector<int>* names) {
  const size_t skipped = result.size() - shape.size();
  for (size_t a = 0; a < shape.size(); ++a) {
    if (shape[a] == result[a + skipped]) (*names)[a] = static_cast<int>(a + skipped);
  }
}

// Output element i depends only on elements i of the broadcast inputs.
AxisNames Elementwise(const NodeContext& c) {
  AxisNames names = AllWhole(c);
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    if (c.has(i)) NameBroadcast(c.in(i), c.out(), &names.inputs[i]);
  }
  for (size_t o = 0; o < c.node.outputs.size(); ++o) NameBroadcast(c.out(o), c.out(), &names.outputs[o]);
  return names;
}

// Names axes as Elementwise does, except for the random key, which is whole.
AxisNames Dropout(const NodeContext& c) {
  AxisNames names = AllWhole(c);
  NameBroadcast(c.in(0), c.out(), &names.inputs[0]);
  NameBroadcast(c.out(), c.out(), &names.outputs[0]);
  return names;
}

AxisNames MatMul(const NodeContext& c) {
  const int rank = static_cast<int>(c.out().size()), k = rank;
  AxisNames names = AllWhole(c);
  names.sums = true;
  NameBroadcast(c.out(), c.out(), &names.outputs[0]);
  const auto name = [&](size_t input, bool swapped, int row, int column) {
    std::vector<int>& of = names.inputs[input];
    const Shape batch(c.in(input).begin(), c.in(input).end() - 2), result(c.out().begin(), c.out().end() - 2);
    NameBroadcast(batch, result, &of);
    of[of.size() - 2] = swapped ? column : row;
    of[of.size() - 1] = swapped ? row : column;
  };
  name(0, c.node.attrs.Int("trans_a") != 0, rank - 2, k);
  name(1, c.node.attrs.Int("trans_b") != 0, k, rank - 1);
  return names;
}

// Names the rows. The blocks of the weight are whole.
AxisNames MatMulDequantized(const NodeContext& c) {
  AxisNames names = AllWhole(c);
  for (int a = 0; a + 1 < c.rank(0); ++a) names.inputs[0][a] = names.outputs[0][a] = a;
  return names;
}

// x [N,C,…], w [M,C/g,…], b [M] → y [N,M,…]. With groups, these are divided.
AxisNames Conv(const NodeContext& c) {
  AxisNames names = AllWhole(c);
  names.inputs[0][0] = names.outputs[0][0] = 0;
  names.inputs[1][0] = names.outputs[0][1] = 1;
  if (c.has(2)) names.inputs[2][0] = 1;
  const bool grouped = c.node.attrs.Int("group", 1) > 1;
  names.inputs[0][1] = grouped ? 1 : 2;
  if (!grouped) names.inputs[1][1] = 2;
  names.sums = !grouped;
  return names;
}

// dy [N,M,…], w [M,C/g,…] → dx [N,C,…].
AxisNames ConvTranspose(const NodeContext& c) {
  AxisNames names = AllWhole(c);
  if (c.node.attrs.Int("group", 1) > 1) return names;
  names.inputs[0][0] = names.outputs[0][0] = 0;
  names.inputs[1][1] = names.outputs[0][1] = 1;
  names.inputs[0][1] = names.inputs[1][0] = 2;
  names.sums = true;
  return names;
}

// Gives the first `count` axes of all operands the same names.
AxisNames Leading(const NodeContext& c, int64_t count) {
  AxisNames names = AllWhole(c);
  for (int64_t a = 0; a < count; ++a) {
    names.inputs[0][a] = static_cast<int>(a);
    for (std::vector<int>& output : names.outputs) output[a] = static_cast<int>(a);
  }
  return names;
}

AxisNames Pool(const NodeContext& c) { return Leading(c, 2); }
AxisNames LayerNorm(const NodeContext& c) { return Leading(c, c.node.attrs.Int("axis")); }

// Everything but x and y is a vector of channels.
AxisNames BatchNorm(const NodeContext& c) {
  AxisNames names = AllWhole(c);
  const auto name = [](std::vector<int>& operand) { operand[operand.size() == 1 ? 0 : 1] = 0; };
  std::ranges::for_each(names.inputs, name);
  std::ranges::for_each(names.outputs, name);
  return names;
}

// Lets all axes be divided except `axes`.
AxisNames Except(const NodeContext& c, const std::vector<int64_t>& axes) {
  AxisNames names = AllWhole(c);
  for (auto* operands : {&names.inputs, &names.outputs}) {
    for (std::vector<int>& of : *operands) {
      for (size_t a = 0; a < of.size(); ++a)
        of[a] = std::ranges::find(axes, static_cast<int64_t>(a)) == axes.end() ? static_cast<int>(a) : kWhole;
    }
  }
  return names;
}
AxisNames ExceptAxis(const NodeContext& c) { return Except(c, {c.node.attrs.Int("axis")}); }

// Means are whole where their axis is: the sum of a part would have to be divided again.
AxisNames Reduce(const NodeContext& c) {
  AxisNames names = AllWhole(c);
  const std::vector<int64_t> axes = c.node.attrs.Ints("axes");
  const bool sums = c.node.op == "ReduceSum", keeps = c.node.attrs.Int("keepdims", 1) != 0;
  size_t to = 0;
  for (int a = 0; a < c.rank(0); ++a) {
    const bool reduced = axes.empty() || std::ranges::find(axes, a) != axes.end();
    if (!reduced || sums) names.inputs[0][a] = a;
    if (!reduced) names.outputs[0][to] = a;
    if (!reduced || keeps) ++to;
  }
  names.sums = sums;
  return names;
}

AxisNames Transpose(const NodeContext& c) {
  AxisNames names = Leading(c, c.rank(0));
  const std::vector<int64_t> perm = c.node.attrs.Ints("perm");
  for (size_t a = 0; a < perm.size(); ++a) names.outputs[0][a] = static_cast<int>(perm[a]);
  return names;
}

// x[…, index, …]: rows that a rank does not have are terms of 0.
AxisNames Gather(const NodeContext& c) {
  AxisNames names = AllWhole(c);
  const auto axis = static_cast<int>(c.node.attrs.Int("axis"));
  const int indices = c.rank(1), rank = c.rank(0);
  for (int a = 0; a < rank; ++a) {
    names.inputs[0][a] = a;
    if (a != axis) names.outputs[0][a < axis ? a : a + indices - 1] = a;
  }
  for (int a = 0; a < indices; ++a) names.inputs[1][a] = names.outputs[0][axis + a] = rank + a;
  names.sums = true;
  return names;
}

// q [B…,S,D], k [B…,T,D], v [B…,T,E], mask → y [B…,S,E].
AxisNames Attention(const NodeContext& c) {
  AxisNames names = AllWhole(c);
  const int rank = c.rank(0), rows = rank - 2, width = rank - 1;
  for (int a = 0; a < rows; ++a) {
    for (size_t i = 0; i < 3; ++i) names.inputs[i][a] = a;
    names.outputs[0][a] = a;
  }
  names.inputs[0][rows] = names.outputs[0][rows] = rows;
  names.inputs[2][width] = names.outputs[0][width] = width;
  if (!c.has(3)) return names;
  const Shape& mask = c.in(3);
  const int skipped = rank - static_cast<int>(mask.size());
  for (int a = 0; a < std::ssize(mask); ++a) {
    if (a + skipped < width && mask[a] == c.in(0)[a + skipped]) names.inputs[3][a] = a + skipped;
  }
  return names;
}

using NameAxes = AxisNames (*)(const NodeContext&);

NameAxes FindNames(const Node& node) {
  static const auto* rules = new std::map<std::string_view, NameAxes>{
      {"MatMul", MatMul},
      {"MatMulDequantized", MatMulDequantized},
      {"Conv", Conv},
      {"ConvTranspose", ConvTranspose},
      {"Attention", Attention},
      {"Dropout", Dropout},
      {"Gather", Gather},
      {"Transpose", Transpose},
      {"Expand", Elementwise},
      {"StraightThrough", Elementwise},
      {"MaxPool", Pool},
      {"AveragePool", Pool},
      {"Resample", Pool},
      {"BatchNorm", BatchNorm},
      {"BatchNormInference", BatchNorm},
      {"LayerNorm", LayerNorm},
      {"RmsNorm", LayerNorm},
      {"Softmax", ExceptAxis},
      {"LogSoftmax", ExceptAxis},
      {"CumSum", ExceptAxis},
      {"Concat", ExceptAxis},
      {"Split", ExceptAxis},
  };
  const auto found = rules->find(node.op);
  if (found != rules->end()) return found->second;
  const OpRow& row = *FindOp(node.op);
  return row.reduction ? Reduce : row.elementwise ? Elementwise : nullptr;
}

std::optional<AxisSplit> FindName(const std::vector<int>& names, int name, int64_t blocks) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return AxisSplit{static_cast<int>(found - names.begin()), blocks};
}

std::optional<NodeSplit> SplitByNames(const NodeContext& c, const AxisNames& names, OperandIndex at,
                                      const AxisSplit& split) {
  const int name = (at.output ? names.outputs : names.inputs)[at.index][split.axis];
  if (name == kWhole) return std::nullopt;
  NodeSplit result;
  for (const auto& input : names.inputs) result.inputs.push_back(FindName(input, name, split.blocks));
  for (const auto& output : names.outputs) result.outputs.push_back(FindName(output, name, split.blocks));
  const auto is_split = [](const auto& operand) { return operand.has_value(); };
  const bool all = std::ranges::all_of(result.outputs, is_split);
  result.sums = std::ranges::none_of(result.outputs, is_split);
  if (!all && !(result.sums && names.sums)) return std::nullopt;
  return result;
}

// Groups of axes [begin, end) of two shapes with the same elements.
struct AxisGroup {
  size_t from_begin, from_end, to_begin, to_end;
};

std::vector<AxisGroup> GroupAxes(const Shape& from, const Shape& to) {
  std::vector<AxisGroup> groups;
  for (size_t f = 0, t = 0; f < from.size() && t < to.size();) {
    AxisGroup group{f, f + 1, t, t + 1};
    int64_t a = from[f++], b = to[t++];
    while (a != b) a < b ? a *= from[f++] : b *= to[t++];
    group.from_end = f, group.to_end = t;
    groups.push_back(group);
  }
  return groups;
}

// The axis of `to` that holds the parts of an axis of `from`: both are the same runs of the same elements.
std::optional<AxisSplit> ReshapeSplit(const Shape& from, const Shape& to, const AxisSplit& split, int ranks) {
  if (NumElements(from) == 0) return std::nullopt;
  for (const AxisGroup& group : GroupAxes(from, to)) {
    const auto axis = static_cast<size_t>(split.axis);
    if (axis < group.from_begin || axis >= group.from_end) continue;
    int64_t runs = split.blocks;
    for (size_t a = group.from_begin; a < axis; ++a) runs *= from[a];
    for (size_t a = group.to_begin; a < group.to_end; ++a) {
      if (runs < to[a]) {
        const AxisSplit result{static_cast<int>(a), runs};
        return CanSplit(to, result, ranks) ? std::optional(result) : std::nullopt;
      }
      if (runs % to[a] != 0) return std::nullopt;
      runs /= to[a];
    }
  }
  return std::nullopt;
}

std::optional<NodeSplit> SplitReshape(const NodeContext& c, OperandIndex at, const AxisSplit& split) {
  const auto other =
      at.output ? ReshapeSplit(c.out(), c.in(0), split, c.ranks) : ReshapeSplit(c.in(0), c.out(), split, c.ranks);
  if (!other) return std::nullopt;
  return NodeSplit{{at.output ? *other : split}, {at.output ? split : *other}};
}

// A whole of `count` equal pieces along the axis: its blocks are those of the pieces, one after the other.
std::optional<NodeSplit> SplitPieces(const NodeContext& c, bool whole_given, bool whole_is_input, int64_t count,
                                     const AxisSplit& split) {
  if (whole_given && split.blocks % count != 0) return std::nullopt;
  const AxisSplit whole{split.axis, whole_given ? split.blocks : split.blocks * count},
      piece{split.axis, whole.blocks / count};
  NodeSplit result;
  result.inputs.assign(c.node.inputs.size(), whole_is_input ? whole : piece);
  result.outputs.assign(c.node.outputs.size(), whole_is_input ? piece : whole);
  return result;
}

bool AllEqual(const std::vector<int64_t>& values) {
  return std::ranges::all_of(values, [&](int64_t v) { return v == values[0]; });
}

std::optional<NodeSplit> SplitSplit(const NodeContext& c, OperandIndex at, const AxisSplit& split) {
  const std::vector<int64_t> sizes = c.node.attrs.Ints("sizes");
  if (!AllEqual(sizes)) return std::nullopt;
  return SplitPieces(c, !at.output, true, std::ssize(sizes), split);
}

std::optional<NodeSplit> SplitConcat(const NodeContext& c, OperandIndex at, const AxisSplit& split) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) sizes.push_back(c.in(i)[split.axis]);
  if (!AllEqual(sizes)) return std::nullopt;
  return SplitPieces(c, at.output, false, std::ssize(sizes), split);
}

// One of several pieces of equal size, or all of the axis.
std::optional<NodeSplit> SplitSlice(const NodeContext& c, OperandIndex at, const AxisSplit& split) {
  const int64_t start = c.node.attrs.Ints("starts")[split.axis], size = c.node.attrs.Ints("sizes")[split.axis],
                step = c.node.attrs.Ints("steps")[split.axis], extent = c.in(0)[split.axis];
  if (step != 1 || size == 0 || extent % size != 0 || start % size != 0) return std::nullopt;
  return SplitPieces(c, !at.output, true, extent / size, split);
}

// Pads no divided axis.
std::optional<NodeSplit> SplitPad(const NodeContext& c, OperandIndex, const AxisSplit& split) {
  const std::vector<int64_t> pads = c.node.attrs.Ints("pads");
  if (pads[split.axis] != 0 || pads[split.axis + pads.size() / 2] != 0) return std::nullopt;
  return NodeSplit{{split}, {split}};
}

using SplitRule = std::optional<NodeSplit> (*)(const NodeContext&, OperandIndex, const AxisSplit&);

std::optional<NodeSplit> Apply(const NodeContext& c, OperandIndex at, const AxisSplit& split) {
  const std::string& op = c.node.op;
  if (op == "Reshape") return SplitReshape(c, at, split);
  if (op == "Slice") return SplitSlice(c, at, split);
  if (op == "Pad") return SplitPad(c, at, split);
  const bool along = split.axis == c.node.attrs.Int("axis", -1);
  if (op == "Split" && along) return SplitSplit(c, at, split);
  if (op == "Concat" && along) return SplitConcat(c, at, split);
  const NameAxes names = FindNames(c.node);
  return names == nullptr ? std::nullopt : SplitByNames(c, names(c), at, split);
}

// A rank has whole groups of a convolution.
bool HasWholeGroups(const NodeContext& c, const NodeSplit& split) {
  const int64_t group = c.node.attrs.Int("group", 1);
  if (c.node.op != "Conv" || group == 1 || !split.outputs[0] || split.outputs[0]->axis != 1) return true;
  return split.outputs[0]->blocks == 1 && group % c.ranks == 0;
}

bool CanSplitAll(const NodeContext& c, const NodeSplit& split) {
  for (size_t i = 0; i < split.inputs.size(); ++i) {
    if (split.inputs[i] && !CanSplit(c.in(i), *split.inputs[i], c.ranks)) return false;
  }
  for (size_t i = 0; i < split.outputs.size(); ++i) {
    if (split.outputs[i] && !CanSplit(c.out(i), *split.outputs[i], c.ranks)) return false;
  }
  return HasWholeGroups(c, split);
}

}  // namespace

std::optional<NodeSplit> SplitNode(const Graph& graph, const Node& node, OperandIndex at, const AxisSplit& split,
                                   int ranks) {
  const NodeContext context{graph, node, ranks};
  std::optional<NodeSplit> result = Apply(context, at, split);
  return result && CanSplitAll(context, *result) ? result : std::nullopt;
}

std::optional<int> FindWeightAxis(const Graph& graph, const Node& node, size_t weight) {
  const NameAxes rule = FindNames(node);
  if (rule == nullptr) return std::nullopt;
  const AxisNames names = rule({graph, node, 0});
  if (!names.sums || node.inputs.size() < 2 || weight > 1) return std::nullopt;
  for (size_t a = 0; a < names.outputs[0].size(); ++a) {
    const int name = names.outputs[0][a];
    const auto has = [&](size_t input) {
      return std::ranges::find(names.inputs[input], name) != names.inputs[input].end();
    };
    if (name != kWhole && has(weight) && !has(1 - weight)) return static_cast<int>(a);
  }
  return std::nullopt;
}

Attrs PartAttrs(const Graph& graph, const Node& node, const NodeSplit& split, int ranks) {
  Attrs attrs = node.attrs;
  const std::optional<AxisSplit>& output = split.outputs[0];
  if (!output) return attrs;
  const auto divide = [&](std::string_view name) {
    std::vector<int64_t> values = attrs.Ints(name);
    values[output->axis] /= ranks;
    attrs.Set(std::string(name), std::move(values));
  };
  if (node.op == "Reshape" || node.op == "Expand") divide("shape");
  if (node.op == "Slice") divide("sizes"), divide("starts");
  if (node.op == "Split" && output->axis == attrs.Int("axis")) {
    std::vector<int64_t> sizes = attrs.Ints("sizes");
    for (int64_t& size : sizes) size /= ranks;
    attrs.Set("sizes", std::move(sizes));
  }
  if (node.op == "Conv" && output->axis == 1 && attrs.Int("group", 1) > 1)
    attrs.Set("group", attrs.Int("group") / ranks);
  return attrs;
}

}  // namespace onnxtrain
