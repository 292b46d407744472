// Convolutions and torch.NhwcConv …, which run the kernels of the canonical operators on [N,C,…] views of [N,…,C]
// tensors. ATen pads both ends of an axis equally; for other pads, the input is padded first.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include "backends/torch/compat.h"
#include "backends/torch/kernel.h"
#include "backends/torch/kernels/window.h"
#include "backends/torch/layout/channels_last.h"
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

namespace {

std::vector<int64_t> Zeros(size_t n) { return std::vector<int64_t>(n, 0); }

std::vector<int64_t> PaddedSizes(const at::Tensor& x, const Window& w) {
  std::vector<int64_t> sizes = x.sizes().vec();
  for (size_t i = 0; i < w.rank(); ++i) sizes[2 + i] += w.begin[i] + w.end[i];
  return sizes;
}

Run Conv(const Args& a) {
  const Window w = MakeWindow(a.attrs(), {});
  const Optional<at::Tensor> bias = a.has(2) ? Optional<at::Tensor>(a.in[2]) : Optional<at::Tensor>();
  const std::vector<int64_t> pads = w.symmetric() ? w.begin : Zeros(w.rank()), no_output_pads = Zeros(w.rank());
  return [=, x = a.in[0], weight = a.in[1], y = a.out[0], group = a.attrs().Int("group", 1)] {
    y.copy_(at::convolution(w.symmetric() ? x : Padded(x, w, 0), weight, bias, w.strides, pads, w.dilations,
                            /*transposed=*/false, no_output_pads, group));
  };
}

// Computes the backward-data convolution. ATen reads only the shape of `input`.
Run ConvTranspose(const Args& a) {
  const Window w = MakeWindow(a.attrs(), {});
  const at::Tensor dx = a.out[0];
  const at::Tensor input = w.symmetric() ? dx : at::empty(PaddedSizes(dx, w), dx.options());
  const std::vector<int64_t> pads = w.symmetric() ? w.begin : Zeros(w.rank()), no_output_pads = Zeros(w.rank());
  return [=, dy = a.in[0], weight = a.in[1], group = a.attrs().Int("group", 1)] {
    const at::Tensor full =
        std::get<0>(at::convolution_backward(dy, input, weight, at::nullopt, w.strides, pads, w.dilations,
                                             /*transposed=*/false, no_output_pads, group, {true, false, false}));
    dx.copy_(w.symmetric() ? full : Unpadded(full, w, dx.sizes().slice(2)));
  };
}

Run ConvWeightGrad(const Args& a) {
  const Window w = MakeWindow(a.attrs(), {});
  const std::vector<int64_t> pads = w.symmetric() ? w.begin : Zeros(w.rank()), no_output_pads = Zeros(w.rank());
  return [=, x = a.in[0], dy = a.in[1], dw = a.out[0], group = a.attrs().Int("group", 1)] {
    const at::Tensor input = w.symmetric() ? x : Padded(x, w, 0);
    dw.copy_(std::get<1>(at::convolution_backward(dy, input, dw, at::nullopt, w.strides, pads, w.dilations,
                                                  /*transposed=*/false, no_output_pads, group, {false, true, false})));
  };
}

}  // namespace

std::span<const NamedKernel> ConvKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"Conv", {Conv}},
      {"ConvTranspose", {ConvTranspose}},
      {"ConvWeightGrad", {ConvWeightGrad}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
