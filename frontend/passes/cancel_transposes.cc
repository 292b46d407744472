#include "frontend/passes/cancel_transposes.h"

#include <algorithm>
#include <numeric>

#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/ops/simplify/simplify.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/match.h"
#include "frontend/passes/rewrite.h"

namespace onnxtrain {
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

// A node that reads a transposed value, to be replaced by the same operator on the untransposed values.
struct Sink {
  const Node& node;
  Builder& b;
  std::vector<Val> in;
  Ints perm;  // of the transposes: y.shape[i] = x.shape[perm[i]]

  int64_t Axis(int64_t axis) const { return perm[axis]; }
  // Permutes numbers per axis of the output to the axes of the untransposed value.
  Ints Untransposed(const Ints& values) const {
    Ints out(values.size());
    for (size_t i = 0; i < values.size(); ++i) out[perm[i]] = values[i];
    return out;
  }
  Val Finish(Val y) const { return Transpose(y, perm); }
};

// Returns the value that a transpose gives as v, or an invalid Val.
Val Untransposed(Val v) { return MatchInput(v, "Transpose"); }

// Returns v with Transpose(v, perm) = operand, or an invalid Val if that moved elements.
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

// Slice and SliceGrad.
Val SinkSlice(const Sink& s) {
  Attrs attrs = s.node.attrs;
  for (const char* name : {"input_shape", "starts", "sizes", "steps"}) {
    if (attrs.Has(name)) attrs.Set(name, s.Untransposed(attrs.Ints(name)));
  }
  return s.Finish(s.b.Op(s.node.op, {Untransposed(s.in[0])}, attrs));
}

// Fails where the axes that are left change their order.
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

// Counts the elements that transposes of activations move. Weights are transposed once per update.
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
