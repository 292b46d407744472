// Quantizes optimizer states to the 8-bit dynamic code, and back.
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "backends/torch/kernel.h"
#include "backends/torch/kernels/dequantize.h"
#include "frontend/ops/dynamic_code.h"

namespace onnxtrain::aten {
namespace {

at::Tensor Upload(at::ArrayRef<float> numbers, const at::Tensor& like) {
  return at::tensor(numbers).to(like.device(), like.scalar_type());
}

// Returns the elements as [blocks, kDynamicBlock], the last block filled up with zeros.
at::Tensor AsBlocks(const at::Tensor& x) {
  const int64_t missing = DynamicBlocks(x.numel()) * kDynamicBlock - x.numel();
  const at::Tensor flat = x.flatten();
  return (missing == 0 ? flat : at::constant_pad_nd(flat, {0, missing})).view({-1, kDynamicBlock});
}

const DynamicCode& GetCode(const Args& a) { return GetDynamicCode(a.attrs().Int("signed") != 0); }

}  // namespace

Run PrepareQuantizeDynamic(const Args& a) {
  if (a.in[0].numel() == 0) return {};
  const DynamicCode& code = GetCode(a);
  const at::Tensor thresholds = Upload(code.thresholds, a.in[0]);
  return [=, &code, x = a.in[0], codes = a.Out(0), scales = a.Out(1)] {
    const at::Tensor blocks = AsBlocks(x), most = blocks.abs().amax(1);
    const at::Tensor numbers = blocks.div(most.clamp_min(double{kMinDynamicScale}).unsqueeze(1));
    const at::Tensor magnitudes = code.is_signed() ? numbers.abs() : numbers.clamp_min(0);
    at::Tensor index = at::bucketize(magnitudes, thresholds, /*out_int32=*/true);
    if (code.is_signed()) index = at::where(numbers.lt(0), index.neg(), index).add_(code.zero).clamp_min_(0);
    codes.copy_(index.flatten().narrow(0, 0, codes.numel()).view(codes.sizes()));
    scales.copy_(most);
  };
}

Run PrepareDequantizeDynamic(const Args& a) {
  if (a.out[0].numel() == 0) return {};
  const at::Tensor values = Upload(GetCode(a).values, a.in[1]);
  return [=, codes = a.in[0], scales = a.in[1], y = a.out[0]] {
    const at::Tensor numbers = AsBlocks(values.index_select(0, codes.flatten().to(at::kInt)));
    const at::Tensor all = (numbers * scales.unsqueeze(1)).flatten();
    y.copy_(all.narrow(0, 0, y.numel()).view(y.sizes()));
  };
}

}  // namespace onnxtrain::aten
