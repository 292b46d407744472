#include <algorithm>

#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/layout_search.h"
#include "frontend/base/status.h"
#include "frontend/ops/layout.h"
#include "frontend/passes/match.h"

namespace onnxtrain::cpu {

LayoutVariants::LayoutVariants(Rewriter& r) : r_(r), nchw_(r.from().values().size()), nhwc_(nchw_.size()) {}

Val LayoutVariants::Nchw(ValueId v) {
  if (v == kNoValue) return Val();
  if (!nchw_[v]) Set(v, nhwc_[v] ? ToNchw(nhwc_[v]) : r_.Map(v));
  return nchw_[v];
}

Val LayoutVariants::Nhwc(ValueId v) {
  if (!nhwc_[v]) nhwc_[v] = ToNhwc(Nchw(v));
  return nhwc_[v];
}

void LayoutVariants::Set(ValueId v, Val now) {
  if (now.type() != r_.from().type(v)) {
    nhwc_[v] = now;
    return;
  }
  nchw_[v] = now;
  r_.Set(v, now);
  r_.b().graph().SetValueName(now.id(), r_.from().value(v).name);
}

namespace {

using Ints = std::vector<int64_t>;
using Vals = std::vector<Val>;
using Kind = LayoutConstraint::Kind;

// --- Rules for channels-last nodes

// Returns the operand with leading axes of extent 1 up to `rank`, channels last.
Val Spread(const LoweringContext& c, size_t i, int rank) {
  Shape shape(rank - c.in(i).rank(), 1);
  shape.insert(shape.end(), c.in(i).shape.begin(), c.in(i).shape.end());
  return ToNhwc(Reshape(c.nchw(i), shape));
}

Vals LowerToSameOp(const LoweringContext& c) {
  const LayoutOperands operands = FindLayoutOperands(c.from(), c.node);
  Vals in;
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    const bool spreads = operands.any_order && c.has(i) && (c.in(i).elements() != 1 || operands.inputs == 0);
    in.push_back(HasBit(operands.inputs, i) ? c.nhwc(i) : spreads ? Spread(c, i, c.out().rank()) : c.nchw(i));
  }
  return c.b().Ops(c.node.op, in, c.attrs());
}

Vals LowerMaxPool(const LoweringContext& c) {
  Attrs attrs = c.attrs();
  attrs.Set("index_in_window", int64_t{1});
  return c.b().Ops("MaxPool", {c.nhwc(0)}, attrs);
}

const Node* FindMaxPool(const Graph& graph, const Node& grad) {
  const Node* pool = graph.producer(grad.inputs[1]);
  return pool != nullptr && pool->op == "MaxPool" && pool->outputs[1] == grad.inputs[1] ? pool : nullptr;
}

Vals LowerMaxPoolGrad(const LoweringContext& c) {
  Attrs attrs = FindMaxPool(c.from(), c.node)->attrs;
  attrs.Erase("index_in_window");
  attrs.Set("input_shape", c.out().shape);
  return {c.b().Op("MaxPoolGrad", {c.nhwc(0), c.nhwc(1)}, attrs)};
}

constexpr int64_t kNarrowChannels = 32;

// Lowers a sum over all axes but a narrow channel axis: first adds rows of several pixels, which are longer.
Vals LowerReduceSum(const LoweringContext& c) {
  constexpr int64_t kWidth = 64;
  const Ints axes = c.attrs().Ints("axes");
  const bool narrow = c.in(0).elements() > 0 && c.in(0).dtype == DType::kFloat32 && c.out().rank() == 1 &&
                      c.in(0).shape[1] < kNarrowChannels && std::find(axes.begin(), axes.end(), 1) == axes.end();
  if (!narrow) return LowerToSameOp(c);
  const int64_t channels = c.in(0).shape[1], rows = c.in(0).elements() / channels;
  int64_t together = 1;
  while (2 * together * channels <= kWidth && rows % (2 * together) == 0) together *= 2;
  const Val x = Reinterpret(c.nhwc(0), {DType::kFloat32, {rows / together, together * channels}});
  return {ReduceSum(Reshape(ReduceSum(x, {0}, false), {together, channels}), {0}, false)};
}

// Lowers transposes: one between the two layouts is a view.
Vals LowerTranspose(const LoweringContext& c) {
  const int rank = c.out().rank();
  if (c.attrs().Ints("perm") == NchwToNhwcPerm(rank)) return {Reinterpret(c.nhwc(0), c.out())};
  return {Reinterpret(c.nchw(0), {c.out().dtype, c.out().shape, Layout::kChannelsLast})};
}

struct LoweringRow {
  std::string_view op;
  LowerRule lower;
};

constexpr LoweringRow kLowerings[] = {
    {"Conv", LowerConv},          {"ConvTranspose", LowerConvTranspose}, {"ConvWeightGrad", LowerConvWeightGrad},
    {"MaxPool", LowerMaxPool},    {"MaxPoolGrad", LowerMaxPoolGrad},     {"ReduceSum", LowerReduceSum},
    {"Transpose", LowerTranspose}};

LowerRule FindLowering(const Node& node) {
  for (const LoweringRow& row : kLowerings) {
    if (row.op == node.op) return row.lower;
  }
  return LowerToSameOp;
}

// --- The pass

// Finds the pools whose positions of maxima only their gradient reads. Channels-last pools store a position in a byte,
// as the number of an element in its window.
class MaxPools {
 public:
  explicit MaxPools(const Graph& graph) : graph_(graph), pattern_(graph) {}

  // Returns true if a MaxPool or MaxPoolGrad may be channels last.
  bool CanBeChannelsLast(const Node& node) const {
    const Node* pool = node.op == "MaxPool" ? &node : FindMaxPool(graph_, node);
    if (pool == nullptr || NumElements(pool->attrs.Ints("kernel_shape")) > 255) return false;
    const ValueId index = pool->outputs[1];
    return !pattern_.IsOutput(index) && std::ranges::all_of(pattern_.users(index), [&](int32_t n) {
      const Node& grad = graph_.nodes()[n];
      return grad.op == "MaxPoolGrad" && grad.inputs[0] != index &&
             grad.attrs.Ints("input_shape") == graph_.type(pool->inputs[0]).shape;
    });
  }

 private:
  const Graph& graph_;
  const Pattern pattern_;
};

class LayoutRewriter {
 public:
  explicit LayoutRewriter(const Graph& graph) : graph_(graph), pools_(graph) {
    std::vector<bool> inseparable(graph.values().size(), false);
    for (const Node& node : graph.nodes()) {
      constraints_.push_back(FindConstraint(node));
      if (node.op == "MaxPool") inseparable[node.outputs[1]] = true;
    }
    nhwc_ = SearchLayouts(graph, constraints_, inseparable);
  }

  absl::StatusOr<Graph> Run() const {
    Graph result;
    Rewriter r(graph_, &result);
    LayoutVariants variants(r);
    for (size_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      r.b().set_source(node.source);
      Vals outputs;
      if (nhwc_[n]) {
        outputs = FindLowering(node)({variants, node});
      } else {
        for (ValueId v : node.inputs) variants.Nchw(v);
        r.Copy(node);
      }
      RETURN_IF_ERROR(r.b().status());
      for (size_t i = 0; i < outputs.size(); ++i) variants.Set(node.outputs[i], outputs[i]);
    }
    for (const GraphOutput& output : graph_.outputs()) variants.Nchw(output.value);
    r.CopyOutputs();
    return result;
  }

 private:
  LayoutConstraint FindConstraint(const Node& node) const {
    if (IsChannelsLast(graph_, node)) return {};
    if (const LayoutConstraint reorder = FindReorderConstraint(graph_, node); reorder.kind != Kind::kRowMajor)
      return reorder;
    const LayoutOperands operands = FindLayoutOperands(graph_, node);
    const LayoutConstraint propagate{Kind::kPropagate, operands};
    if (operands.any_order) return {};
    const KernelRow* row = FindChannelsLastKernel(node.op);
    if (row == nullptr || graph_.type(node.inputs[0]).dtype != DType::kFloat32) return {};
    if (row->prefers != nullptr) {
      return row->prefers({graph_, node}) ? LayoutConstraint{Kind::kNhwc, operands} : LayoutConstraint{};
    }
    const bool pools_maxima = node.op == "MaxPool" || node.op == "MaxPoolGrad";
    const bool can = graph_.type(node.outputs[0]).rank() > 2 && (!pools_maxima || pools_.CanBeChannelsLast(node));
    return can ? propagate : LayoutConstraint{};
  }

  const Graph& graph_;
  const MaxPools pools_;
  std::vector<LayoutConstraint> constraints_;  // by node
  std::vector<bool> nhwc_;                     // by node
};

}  // namespace

absl::StatusOr<Graph> AssignLayouts(const Graph& graph) { return LayoutRewriter(graph).Run(); }

}  // namespace onnxtrain::cpu
