#include "backends/torch/layout/channels_last.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "backends/layout_search.h"
#include "frontend/base/status.h"
#include "frontend/ops/cost.h"
#include "frontend/ops/layout.h"
#include "frontend/ops/row.h"
#include "frontend/passes/rewrite.h"
#include "frontend/passes/simplify.h"

namespace onnxtrain::aten {
namespace {

using Types = std::vector<Type>;

// Bit masks select x and the weights of convolutions (3), because cuDNN reads both channels last; gradients of weights
// stay row-major (0).
constexpr ChannelsLastOp kOps[] = {
    {"Conv", "torch.NhwcConv", 3, 1},
    {"ConvTranspose", "torch.NhwcConvTranspose", 3, 1},
    {"ConvWeightGrad", "torch.NhwcConvWeightGrad", 3, 0},
    {"BatchNorm", "torch.NhwcBatchNorm", 1, 1},
    {"BatchNormGrad", "torch.NhwcBatchNormGrad", 3, 1},
    {"BatchNormInference", "torch.NhwcBatchNormInference", 1, 1},
    {"MaxPool", "torch.NhwcMaxPool", 1, 3},
    {"MaxPoolGrad", "torch.NhwcMaxPoolGrad", 3, 1},
    {"AveragePool", "torch.NhwcAveragePool", 1, 1},
    {"AveragePoolGrad", "torch.NhwcAveragePoolGrad", 1, 1},
};

// Returns the operand types of the canonical operator, with the selected ones permuted to [N,C,…].
Types GetLogical(std::span<const Type* const> types, uint32_t channels_last) {
  Types logical;
  for (size_t i = 0; i < types.size(); ++i) {
    logical.push_back(types[i] == nullptr ? Type{} : *types[i]);
    if (HasBit(channels_last, i)) logical.back().shape = ToChannelsFirst(logical.back().shape);
  }
  return logical;
}

std::vector<const Type*> GetPointers(const Types& types, std::span<const Type* const> present) {
  std::vector<const Type*> pointers;
  for (size_t i = 0; i < types.size(); ++i) pointers.push_back(present[i] == nullptr ? nullptr : &types[i]);
  return pointers;
}

absl::StatusOr<Types> InferChannelsLast(const TypeContext& c) {
  const ChannelsLastOp& op = GetChannelsLastOp(c.op);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (c.has(i) && HasBit(op.inputs, i) && c.in(i).rank() < 3) return Invalid("no channels in ", ToString(c.in(i)));
  }
  const Types logical = GetLogical(c.inputs, op.inputs);
  ASSIGN_OR_RETURN(Types types, FindOp(op.canonical)->infer({op.canonical, GetPointers(logical, c.inputs), c.attrs}));
  for (size_t o = 0; o < types.size(); ++o) {
    if (HasBit(op.outputs, o)) types[o].shape = ToChannelsLast(types[o].shape);
  }
  return types;
}

template <size_t I>
double CountFlops(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) {
  const ChannelsLastOp& op = kOps[I];
  std::vector<const Type*> made;
  for (const Type& type : outputs) made.push_back(&type);
  const Types in = GetLogical(inputs, op.inputs);
  return FindOp(op.canonical)->flops(GetPointers(in, inputs), GetLogical(made, op.outputs), attrs);
}

template <size_t I>
OpRow MakeRow() {
  const OpRow& row = *FindOp(kOps[I].canonical);
  return {.name = kOps[I].name,
          .inputs = row.inputs,
          .outputs = row.outputs,
          .attrs = row.attrs,
          .infer = InferChannelsLast,
          .precision = row.precision,
          .recompute = row.recompute,
          .flops = row.flops == nullptr ? nullptr : CountFlops<I>,
          .overwrites = row.overwrites,
          .batch_coupled = row.batch_coupled,
          .is_gradient = row.is_gradient,
          .selects = row.selects};
}

template <size_t... I>
std::vector<OpRow> MakeRows(std::index_sequence<I...>) {
  return {MakeRow<I>()...};
}

}  // namespace

std::span<const ChannelsLastOp> ChannelsLastOps() { return kOps; }

const ChannelsLastOp* FindChannelsLastOp(std::string_view canonical) {
  const auto* op = std::ranges::find(kOps, canonical, &ChannelsLastOp::canonical);
  return op == std::end(kOps) ? nullptr : op;
}

const ChannelsLastOp& GetChannelsLastOp(std::string_view name) {
  return *std::ranges::find(kOps, name, &ChannelsLastOp::name);
}

void RegisterChannelsLastOps() {
  static const auto* rows = new std::vector<OpRow>(MakeRows(std::make_index_sequence<std::size(kOps)>()));
  RegisterOps(*rows);
}

namespace {

using Vals = std::vector<Val>;
using Kind = LayoutConstraint::Kind;

// Permutes [N,C,…] to [N,…,C]; ToNchw is the inverse.
Val ToNhwc(Val x) {
  if (IsTrivialChannelsLast(x.shape())) return Reshape(x, ToChannelsLast(x.shape()));
  return Transpose(x, NchwToNhwcPerm(x.rank()));
}

Val ToNchw(Val x) {
  const Shape shape = ToChannelsFirst(x.shape());
  return IsTrivialChannelsLast(shape) ? Reshape(x, shape) : Transpose(x, NhwcToNchwPerm(x.rank()));
}

class ChannelsLastRewriter {
 public:
  ChannelsLastRewriter(Rewriter& r, std::vector<bool> nhwc)
      : r_(r), nhwc_(std::move(nhwc)), last_(r.from().values().size()) {}

  absl::Status Run() {
    for (size_t n = 0; n < nhwc_.size(); ++n) {
      const Node& node = r_.from().nodes()[n];
      r_.b().set_source(node.source);
      if (nhwc_[n]) {
        Emit(node);
      } else {
        for (ValueId v : node.inputs) Nchw(v);
        r_.Copy(node);
      }
      RETURN_IF_ERROR(r_.b().status());
    }
    for (const GraphOutput& output : r_.from().outputs()) Nchw(output.value);
    r_.CopyOutputs();
    return r_.b().status();
  }

 private:
  const Type& type(ValueId v) const { return r_.from().type(v); }

  Val Nchw(ValueId v) {
    if (v == kNoValue) return {};
    if (!r_.IsSet(v)) SetNchw(v, ToNchw(last_[v]));
    return r_.Map(v);
  }

  Val Nhwc(ValueId v) {
    if (!last_[v]) last_[v] = ToNhwc(Nchw(v));
    return last_[v];
  }

  void SetNchw(ValueId v, Val now) {
    r_.Set(v, now);
    r_.b().graph().SetValueName(now.id(), r_.from().value(v).name);
  }

  void Emit(const Node& node) {
    if (node.op == "Transpose") return EmitTranspose(node);
    if (const ChannelsLastOp* op = FindChannelsLastOp(node.op)) return EmitKernel(node, *op);
    EmitReordered(node);
  }

  // Emits nothing: a transpose between the two layouts only changes which variant of its operand is read.
  void EmitTranspose(const Node& node) {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    if (node.attrs.Ints("perm") == NchwToNhwcPerm(type(x).rank())) {
      SetNchw(y, Nhwc(x));
    } else {
      last_[y] = Nchw(x);
    }
  }

  void EmitKernel(const Node& node, const ChannelsLastOp& op) {
    Vals in;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      in.push_back(HasBit(op.inputs, i) ? Nhwc(node.inputs[i]) : Nchw(node.inputs[i]));
    SetOutputs(node, r_.b().Ops(op.name, in, node.attrs), op.outputs);
  }

  // Emits an operator that computes in either layout, with permuted axes.
  void EmitReordered(const Node& node) {
    const LayoutOperands operands = FindLayoutOperands(r_.from(), node);
    const int rank = FindLayoutRank(r_.from(), node, operands);
    Vals in;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId v = node.inputs[i];
      const bool spreads = v != kNoValue && (type(v).elements() != 1 || operands.inputs == 0);
      in.push_back(HasBit(operands.inputs, i) ? Nhwc(v) : spreads ? Spread(v, rank) : Nchw(v));
    }
    SetOutputs(node, r_.b().Ops(node.op, in, ToPhysicalAttrs(*FindOp(node.op), node.attrs, rank)), operands.outputs);
  }

  // Returns an operand of lower rank with leading axes of 1, channels last.
  Val Spread(ValueId v, int rank) {
    Shape shape(rank - type(v).rank(), 1);
    shape.insert(shape.end(), type(v).shape.begin(), type(v).shape.end());
    return ToNhwc(Reshape(Nchw(v), shape));
  }

  void SetOutputs(const Node& node, const Vals& outputs, uint32_t channels_last) {
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (HasBit(channels_last, o)) {
        last_[node.outputs[o]] = outputs[o];
      } else {
        SetNchw(node.outputs[o], outputs[o]);
      }
    }
  }

  Rewriter& r_;
  const std::vector<bool> nhwc_;  // by node
  Vals last_;                     // by old value: its [N,…,C] variant
};

bool HasKernelChannelsLast(const Graph& graph, const Node& node) {
  if (FindChannelsLastOp(node.op) == nullptr) return false;
  const Type& x = graph.type(node.inputs[0]);
  return (x.rank() == 4 || x.rank() == 5) && IsFloat(x.dtype) && x.dtype != DType::kFloat64;
}

LayoutConstraint FindConstraint(const Graph& graph, const Node& node, bool tf32) {
  const LayoutConstraint reorder = FindReorderConstraint(graph, node);
  if (reorder.kind != Kind::kRowMajor || !HasKernelChannelsLast(graph, node)) return reorder;
  if (!IsProduct(node)) return {Kind::kPropagate, FindLayoutOperands(graph, node)};
  if (!WantsChannelsLast(graph, node, tf32)) return {};
  return {Kind::kNhwc, FindLayoutOperands(graph, node)};
}

}  // namespace

bool WantsChannelsLast(const Graph& graph, const Node& node, bool tf32) {
  return HasKernelChannelsLast(graph, node) && IsProduct(node) &&
         (tf32 || graph.type(node.inputs[0]).dtype != DType::kFloat32);
}

absl::StatusOr<Graph> AssignChannelsLast(const Graph& graph, bool tf32) {
  RegisterChannelsLastOps();
  std::vector<LayoutConstraint> constraints;
  for (const Node& node : graph.nodes()) constraints.push_back(FindConstraint(graph, node, tf32));
  const std::vector<bool> separable(graph.values().size(), false);
  Graph result;
  Rewriter r(graph, &result);
  RETURN_IF_ERROR(ChannelsLastRewriter(r, SearchLayouts(graph, constraints, separable)).Run());
  return FoldConstants(result);
}

}  // namespace onnxtrain::aten
