#include "frontend/passes/simplify.h"

#include <algorithm>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/ops/simplify/simplify.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
namespace {

bool ReadsExpand(const SimplifyContext& s) {
  return std::ranges::any_of(s.in, [](Val v) { return MatchInput(v, "Expand").valid(); });
}

// Removes an Expand whose user is elementwise and broadcasts anyway.
Val ElementwiseOfExpand(const SimplifyContext& s) {
  if (s.in.size() < 2 || !ReadsExpand(s)) return Val();
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
    if (const Val y = s.Try(in, s.out.shape)) return y;
  }
  return Val();
}

// Rewrites f(Expand(x)) as Expand(f(x)), which computes f on fewer elements. The other operands of f may be scalars.
Val ExpandOfElementwise(const SimplifyContext& s) {
  if (!ReadsExpand(s)) return Val();
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
  return any ? s.Fit(s.Try(in, shape)) : Val();
}

Val SimplifyNode(const SimplifyContext& s) {
  const OpRow* row = FindOp(s.node.op);
  if (row == nullptr) return Val();
  if (row->simplify != nullptr) {
    if (const Val result = row->simplify(s)) return result;
  }
  return row->elementwise ? FirstOf<ElementwiseOfExpand, ExpandOfElementwise>(s) : Val();
}

}  // namespace

absl::StatusOr<Graph> Simplify(const Graph& graph) {
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (node.outputs.size() != 1) return std::nullopt;
    SimplifyContext site{r.b(), node, {}, graph.type(node.outputs[0])};
    site.in.reserve(node.inputs.size());
    for (ValueId v : node.inputs) site.in.push_back(r.Map(v));
    const Val result = SimplifyNode(site);
    if (!result.valid()) return std::nullopt;
    return std::vector<Val>{result};
  });
}

namespace {

constexpr size_t kMaxExpandBytes = 256;

size_t OutputBytes(const Graph& graph, const Node& node) {
  size_t bytes = 0;
  for (ValueId v : node.outputs) bytes += graph.type(v).bytes();
  return bytes;
}

// Returns true if the node can be folded once its inputs are constants.
bool CanFold(const Graph& graph, const Node& node, size_t max_bytes) {
  const OpRow* row = FindOp(node.op);
  return row != nullptr && row->evaluate != nullptr && !node.inputs.empty() &&
         OutputBytes(graph, node) <= (node.op == "Expand" ? kMaxExpandBytes : max_bytes);
}

}  // namespace

bool HasFoldableNodes(const Graph& graph, size_t max_bytes) {
  const auto known = [&](ValueId v) { return v == kNoValue || graph.FindConstant(v) != nullptr; };
  return std::ranges::any_of(graph.nodes(), [&](const Node& node) {
    return std::ranges::all_of(node.inputs, known) && CanFold(graph, node, max_bytes);
  });
}

absl::StatusOr<Graph> FoldConstants(const Graph& graph, size_t max_bytes, HostBudget* budget) {
  HostBudget own;
  if (budget == nullptr) budget = &own;
  return Rewrite(graph, [&](Rewriter& r, const Node& node) -> std::optional<std::vector<Val>> {
    if (!CanFold(graph, node, max_bytes)) return std::nullopt;
    std::vector<const HostTensor*> inputs;
    std::vector<Type> types;
    for (ValueId v : node.inputs) {
      inputs.push_back(r.Map(v).constant());
      if (v != kNoValue && inputs.back() == nullptr) return std::nullopt;
    }
    if (!budget->Spend(graph, node)) return std::nullopt;
    for (ValueId v : node.outputs) types.push_back(graph.type(v));
    std::vector<Val> results;
    for (HostTensor& tensor : FindOp(node.op)->evaluate({node.attrs, inputs, types})) {
      results.push_back(r.b().Constant(std::move(tensor)));
    }
    return results;
  });
}

namespace {

using Ints = std::vector<int64_t>;

// Matches [0, n−1, 1 … n−2] and its inverse [0, 2 … n−1, 1]. Other transposes are parts of patterns such as attention.
bool MovesChannels(const Ints& perm) {
  const auto rank = static_cast<int64_t>(perm.size());
  if (rank < 3) return false;
  Ints to_back(rank), to_front(rank);
  std::iota(to_back.begin(), to_back.end(), int64_t{0});
  to_front = to_back;
  std::rotate(to_back.begin() + 1, to_back.begin() + 2, to_back.end());
  std::rotate(to_front.begin() + 1, to_front.end() - 1, to_front.end());
  return perm == to_back || perm == to_front;
}

// A node with transposed operands, to be replaced by the same operator on the untransposed operands and a Transpose of
// the result.
struct Sink {
  const Node& node;
  Builder& b;
  std::vector<Val> in;
  Ints perm;  // permutation of the transposes: y.shape[i] = x.shape[perm[i]]

  int64_t Axis(int64_t axis) const { return perm[axis]; }
  // Permutes numbers per axis of the output to the axes of the untransposed value.
  Ints Untransposed(const Ints& values) const {
    Ints out(values.size());
    for (size_t i = 0; i < values.size(); ++i) out[perm[i]] = values[i];
    return out;
  }
  Val Finish(Val y) const { return Transpose(y, perm); }
};

// Returns x if v = Transpose(x), otherwise an invalid Val.
Val Untransposed(Val v) { return MatchInput(v, "Transpose"); }

// Returns v such that Transpose(v, perm) = operand, or an invalid Val if computing v would move elements.
Val Before(const Sink& s, Val operand) {
  if (const Val x = Untransposed(operand); x && ProducerAttrs(operand).Ints("perm") == s.perm) return x;
  const auto wide = std::ranges::count_if(operand.shape(), [](int64_t d) { return d != 1; });
  const size_t rank = s.perm.size();
  if (operand.shape().size() > rank || wide > 1) return Val();
  if (wide == 0 && operand.rank() <= 1) return operand;
  Shape shape(rank - operand.shape().size(), 1);
  shape.insert(shape.end(), operand.shape().begin(), operand.shape().end());
  return Reshape(operand, s.Untransposed(shape));
}

Val SinkElementwise(const Sink& s) {
  std::vector<Val> in;
  for (Val v : s.in) {
    in.push_back(Before(s, v));
    if (!in.back().valid()) return Val();
  }
  return s.Finish(s.b.Op(s.node.op, in, s.node.attrs));
}

Val SinkAlongAxis(const Sink& s) {
  std::vector<Val> in;
  for (Val v : s.in) {
    const Val x = Untransposed(v);
    if (!x || ProducerAttrs(v).Ints("perm") != s.perm) return Val();
    in.push_back(x);
  }
  Attrs attrs = s.node.attrs;
  attrs.Set("axis", s.Axis(attrs.Int("axis")));
  return s.Finish(s.b.Op(s.node.op, in, attrs));
}

Val SinkPad(const Sink& s) {
  const Ints pads = s.node.attrs.Ints("pads");
  const auto half = pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2);
  Ints moved = s.Untransposed({pads.begin(), half});
  const Ints ends = s.Untransposed({half, pads.end()});
  moved.insert(moved.end(), ends.begin(), ends.end());
  Attrs attrs = s.node.attrs;
  attrs.Set("pads", moved);
  return s.Finish(s.b.Op(s.node.op, {Untransposed(s.in[0])}, attrs));
}

// Sinks a transpose below Slice or SliceGrad.
Val SinkSlice(const Sink& s) {
  Attrs attrs = s.node.attrs;
  for (const char* name : {"input_shape", "starts", "sizes", "steps"}) {
    if (attrs.Has(name)) attrs.Set(name, s.Untransposed(attrs.Ints(name)));
  }
  return s.Finish(s.b.Op(s.node.op, {Untransposed(s.in[0])}, attrs));
}

// Fails if the remaining axes would change their order.
Val SinkReduce(const Sink& s) {
  Attrs attrs = s.node.attrs;
  Ints axes = attrs.Ints("axes");
  const bool all = axes.empty();
  for (int64_t& axis : axes) axis = s.Axis(axis);
  std::ranges::sort(axes);
  attrs.Set("axes", axes);
  const Val x = Untransposed(s.in[0]);
  if (attrs.Int("keepdims", 1) != 0) return s.Finish(s.b.Op(s.node.op, {x}, attrs));
  Ints kept;
  for (int64_t axis : s.perm) {
    if (!all && !std::ranges::binary_search(axes, axis)) kept.push_back(axis);
  }
  return std::ranges::is_sorted(kept) ? s.b.Op(s.node.op, {x}, attrs) : Val();
}

Val SinkTranspose(const Sink& s) {
  const Val x = Untransposed(s.in[0]);
  Ints perm = s.node.attrs.Ints("perm");
  for (int64_t& axis : perm) axis = s.perm[axis];
  return std::ranges::is_sorted(perm) ? x : Transpose(x, perm);
}

struct Sinker {
  std::string_view op;
  Val (*apply)(const Sink&);
};
constexpr Sinker kSinkers[] = {
    {"Concat", SinkAlongAxis},      {"Softmax", SinkAlongAxis},        {"LogSoftmax", SinkAlongAxis},
    {"SoftmaxGrad", SinkAlongAxis}, {"LogSoftmaxGrad", SinkAlongAxis}, {"Pad", SinkPad},
    {"Slice", SinkSlice},           {"SliceGrad", SinkSlice},          {"Transpose", SinkTranspose},
};

Val Apply(const Sink& s) {
  for (const Sinker& sinker : kSinkers) {
    if (sinker.op == s.node.op) return sinker.apply(s);
  }
  const OpRow& row = *FindOp(s.node.op);
  if (row.reduction) return SinkReduce(s);
  return row.elementwise ? SinkElementwise(s) : Val();
}

std::optional<std::vector<Val>> SinkBelow(Rewriter& r, const Node& node) {
  if (node.outputs.size() != 1 || std::ranges::find(node.inputs, kNoValue) != node.inputs.end()) return std::nullopt;
  Sink sink{node, r.b(), {}, {}};
  for (ValueId v : node.inputs) {
    sink.in.push_back(r.Map(v));
    if (!sink.perm.empty() || !Untransposed(sink.in.back())) continue;
    const Ints perm = ProducerAttrs(sink.in.back()).Ints("perm");
    const bool whole = node.op == "Transpose" || r.from().type(node.outputs[0]).rank() == sink.in.back().rank() ||
                       FindOp(node.op)->reduction;
    if (MovesChannels(perm) && whole) sink.perm = perm;
  }
  if (sink.perm.empty()) return std::nullopt;
  const Val result = Apply(sink);
  return result.valid() ? std::optional(std::vector<Val>{result}) : std::nullopt;
}

// Counts the elements that transposes of activations move. Ignores weights, which are transposed once per update.
int64_t Transposed(const Graph& graph) {
  const Pattern pattern(graph);
  int64_t elements = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op == "Transpose" && !pattern.IsWeight(node.outputs[0]))
      elements += graph.type(node.outputs[0]).elements();
  }
  return elements;
}

}  // namespace

absl::StatusOr<Graph> CancelTransposes(const Graph& graph) {
  const int64_t before = Transposed(graph);
  if (before == 0) return graph;
  ASSIGN_OR_RETURN(Graph moved, Rewrite(graph, SinkBelow));
  moved = Dce(moved);
  return Transposed(moved) < before ? moved : graph;
}

}  // namespace onnxtrain
