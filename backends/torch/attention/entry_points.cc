#include "backends/torch/attention/entry_points.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include <ATen/ops/amax.h>
#include <ATen/ops/constant_pad_nd.h>

#include "backends/torch/compat.h"

#if ONNXTRAIN_TORCH2
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#endif

namespace onnxtrain::aten {

#if ONNXTRAIN_TORCH2
namespace {

Optional<at::Tensor> MaskOf(const AttentionOperands& x) {
  return x.mask.defined() ? Optional<at::Tensor>(x.mask) : Optional<at::Tensor>();
}

AttentionSaved CpuForward(const AttentionOperands& x) {
  auto [y, lse] = at::_scaled_dot_product_flash_attention_for_cpu(x.q, x.k, x.v, 0, x.causal, MaskOf(x), x.scale);
  return {.y = y, .lse = lse};
}

AttentionGradients CpuBackward(const at::Tensor& dy, const AttentionOperands& x, const AttentionSaved& s) {
  return at::_scaled_dot_product_flash_attention_for_cpu_backward(dy, x.q, x.k, x.v, s.y, s.lse, 0, x.causal, MaskOf(x),
                                                                  x.scale);
}

// Converts the tuple that both flash and cuDNN attention return.
template <typename Result>
AttentionSaved SavedOf(const Result& r) {
  return {std::get<0>(r),
          std::get<1>(r),
          std::get<2>(r),
          std::get<3>(r),
          std::get<6>(r),
          std::get<7>(r),
          std::get<4>(r).expect_int(),
          std::get<5>(r).expect_int()};
}

AttentionSaved FlashForward(const AttentionOperands& x) {
  auto r = at::_scaled_dot_product_flash_attention(x.q, x.k, x.v, 0, x.causal, /*return_debug_mask=*/false, x.scale);
  return SavedOf(r);
}

AttentionGradients FlashBackward(const at::Tensor& dy, const AttentionOperands& x, const AttentionSaved& s) {
  return at::_scaled_dot_product_flash_attention_backward(dy, x.q, x.k, x.v, s.y, s.lse, s.cum_q, s.cum_k, s.max_q,
                                                          s.max_k, 0, x.causal, s.seed, s.offset, x.scale);
}

AttentionSaved EfficientForward(const AttentionOperands& x) {
  auto [y, lse, seed, offset] = at::_scaled_dot_product_efficient_attention(
      x.q, x.k, x.v, MaskOf(x), /*compute_log_sumexp=*/true, 0, x.causal, x.scale);
  return {.y = y, .lse = lse, .cum_q = {}, .cum_k = {}, .seed = seed, .offset = offset};
}

AttentionGradients EfficientBackward(const at::Tensor& dy, const AttentionOperands& x, const AttentionSaved& s) {
  const std::array<bool, 4> wanted = {true, true, true, false};  // no gradient of the mask
  auto [dq, dk, dv, dmask] = at::_scaled_dot_product_efficient_attention_backward(
      dy, x.q, x.k, x.v, x.mask, s.y, s.lse, s.seed, s.offset, 0, wanted, x.causal, x.scale);
  return {dq, dk, dv};
}

AttentionSaved CudnnForward(const AttentionOperands& x) {
  auto r = at::_scaled_dot_product_cudnn_attention(x.q, x.k, x.v, MaskOf(x), /*compute_log_sumexp=*/true, 0, x.causal,
                                                   /*return_debug_mask=*/false, x.scale);
  return SavedOf(r);
}

AttentionGradients CudnnBackward(const at::Tensor& dy, const AttentionOperands& x, const AttentionSaved& s) {
  return at::_scaled_dot_product_cudnn_attention_backward(dy, x.q, x.k, x.v, s.y, s.lse, s.seed, s.offset, x.mask,
                                                          s.cum_q, s.cum_k, s.max_q, s.max_k, 0, x.causal, x.scale);
}

constexpr AttentionEntry kEntries[] = {
    {"flash_for_cpu", at::kCPU, true, CpuForward, CpuBackward},
    {"flash", at::kCUDA, false, FlashForward, FlashBackward},
    {"efficient", at::kCUDA, true, EfficientForward, EfficientBackward},
    {"cudnn", at::kCUDA, true, CudnnForward, CudnnBackward},
};

}  // namespace

std::span<const AttentionEntry> AttentionEntries() { return kEntries; }
#else
std::span<const AttentionEntry> AttentionEntries() { return {}; }
#endif

const AttentionEntry* FindAttentionEntry(std::string_view name) {
  const std::span<const AttentionEntry> entries = AttentionEntries();
  const auto it = std::ranges::find(entries, name, &AttentionEntry::name);
  return it == entries.end() ? nullptr : &*it;
}

namespace {

// Reshapes x to rank 4: adds leading axes up to `rank`, then the missing batch axes ([B,1,·,·] for rank 3).
at::Tensor WithTwoBatchAxes(at::Tensor x, int64_t rank) {
  while (x.dim() < rank) x = x.unsqueeze(0);
  if (rank == 3) x = x.unsqueeze(1);
  while (x.dim() < 4) x = x.unsqueeze(0);
  return x;
}

double LowestFinite(at::ScalarType type) {
  if (type == at::kHalf) return -65504;
  if (type == at::kBFloat16) return -3.3895313892515355e38;
  return type == at::kDouble ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
}

}  // namespace

at::Tensor AsHeads(const at::Tensor& x) { return WithTwoBatchAxes(x, x.dim()); }

at::Tensor AsHeadMask(const at::Tensor& mask, int64_t rank, const at::Tensor& q, const at::Tensor& k) {
  const int64_t keys = k.size(-2), padding = (16 - keys % 16) % 16;
  at::Tensor m = WithTwoBatchAxes(mask, rank).clamp_min(LowestFinite(q.scalar_type())).to(q.scalar_type());
  m = m.expand({m.size(0), m.size(1), m.size(2), keys}).contiguous();
  // GPU kernels load rows by 16 elements, so every row must begin at a multiple of 16.
  if (q.is_cuda() && padding > 0) m = at::constant_pad_nd(m, {0, padding}, 0).narrow(-1, 0, keys);
  return m.expand({q.size(0), q.size(1), q.size(2), keys});
}

at::Tensor FindHidden(const at::Tensor& mask, int64_t rank) {
  const at::Tensor m = WithTwoBatchAxes(mask, rank);
  return m.amax({-1}, /*keepdim=*/true).eq(-std::numeric_limits<double>::infinity());
}

}  // namespace onnxtrain::aten
