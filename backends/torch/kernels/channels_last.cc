// torch.NhwcConv …: the kernels of the canonical operators, over views [N,C,…] of what is stored [N,…,C].
#include "backends/torch/kernel.h"
#include "backends/torch/layout/channels_last_op.h"
#include "frontend/ops/layout.h"

namespace onnxtrain::aten {
namespace {

void ViewChannelsFirst(std::vector<at::Tensor>* tensors, uint32_t channels_last) {
  for (size_t i = 0; i < tensors->size(); ++i) {
    at::Tensor& t = (*tensors)[i];
    if (t.defined() && HasBit(channels_last, i)) t = t.movedim(-1, 1);
  }
}

Run ChannelsLast(const Args& a) {
  const ChannelsLastOp& op = GetChannelsLastOp(a.node.op);
  Args logical = a;
  logical.channels_last_outputs = op.outputs;
  ViewChannelsFirst(&logical.in, op.inputs);
  ViewChannelsFirst(&logical.out, op.outputs);
  return AllKernels().Find(op.canonical)->prepare(logical);
}

}  // namespace

std::span<const NamedKernel> ChannelsLastKernels() {
  static const auto* kernels = [] {
    auto* made = new std::vector<NamedKernel>;
    for (const ChannelsLastOp& op : ChannelsLastOps()) made->push_back({op.name, {ChannelsLast, Types::kNumber}});
    return made;
  }();
  return *kernels;
}

}  // namespace onnxtrain::aten
