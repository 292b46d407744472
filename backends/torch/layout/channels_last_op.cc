#include "backends/torch/layout/channels_last_op.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/layout.h"
#include "frontend/ops/row.h"

namespace onnxtrain::aten {
namespace {

using Types = std::vector<Type>;

// The weights of convolutions are stored channels last, too, as cuDNN reads them; their gradients are not.
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

// The operands as the canonical operator has them.
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

}  // namespace onnxtrain::aten
