#include <ATen/core/grad_mode.h>
#include <ATen/native/transformers/cuda/sdp_utils.h>

#include "backends/torch/cuda.h"

namespace onnxtrain::aten {
namespace {

struct Rule {
  std::string_view entry;
  bool (*takes)(const sdp::sdp_params& operands, bool debug);
};
constexpr Rule kRules[] = {
    {"flash", sdp::can_use_flash_attention},
    {"efficient", sdp::can_use_mem_efficient_attention},
    {"cudnn", sdp::can_use_cudnn_attention},
};

// Marks an operand as trained, because some kernels support more operands if no gradient is needed.
at::Tensor ForTraining(const at::Tensor& x) { return x.detach().set_requires_grad(true); }

}  // namespace

bool SupportsAttention(std::string_view entry, const AttentionOperands& x) {
  if (!x.q.is_cuda()) return true;
  const at::AutoGradMode gradients(true);
  const sdp::sdp_params operands{ForTraining(x.q),    ForTraining(x.k),
                                 ForTraining(x.v),    x.mask.defined() ? std::optional(x.mask) : std::nullopt,
                                 /*dropout=*/0,       x.causal,
                                 /*enable_gqa=*/false};
  for (const Rule& rule : kRules) {
    if (rule.entry == entry) return rule.takes(operands, /*debug=*/false);
  }
  return true;
}

}  // namespace onnxtrain::aten
