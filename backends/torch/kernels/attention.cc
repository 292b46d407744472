// torch.Attention and torch.AttentionGrad.
#include <stdexcept>

#include "backends/torch/attention/attention_op.h"
#include "backends/torch/attention/entry_points.h"
#include "backends/torch/kernel.h"

namespace onnxtrain::aten {
namespace {

const AttentionEntry& FindEntry(const Args& a) {
  const AttentionEntry* entry = FindAttentionEntry(a.attrs().String("kernel"));
  if (entry == nullptr) throw std::runtime_error("no attention kernel " + a.attrs().String("kernel"));
  return *entry;
}

// Makes the operands of a run from the tensors that a node reads.
class Operands {
 public:
  Operands(const Args& a, size_t first, size_t mask)
      : q_(a.in[first]),
        k_(a.in[first + 1]),
        mask_(a.In(mask)),
        may_hide_all_(a.attrs().Int("may_hide_all") != 0),
        fixed_{AsHeads(q_),
               AsHeads(k_),
               AsHeads(a.in[first + 2]),
               {},
               a.attrs().Float("scale"),
               a.attrs().Int("causal") != 0} {}

  AttentionOperands Get() const {
    AttentionOperands x = fixed_;
    if (mask_.defined()) x.mask = AsHeadMask(mask_, q_, k_);
    return x;
  }
  // The rows of queries that see no key are 0 in y, and no gradient comes from them.
  at::Tensor WithoutHidden(const at::Tensor& rows) const {
    return may_hide_all_ ? rows.masked_fill(FindHidden(mask_, q_), 0) : rows;
  }

 private:
  at::Tensor q_, k_, mask_;
  bool may_hide_all_;
  AttentionOperands fixed_;  // without the mask
};

void Store(const at::Tensor& to, const at::Tensor& from) {
  if (to.defined()) to.view(from.sizes()).copy_(from);
}

Run Attention(const Args& a) {
  return [entry = &FindEntry(a), x = Operands(a, 0, 3), y = a.out[0], lse = a.out[1]] {
    const AttentionSaved saved = entry->forward(x.Get());
    Store(y, x.WithoutHidden(saved.y));
    Store(lse, saved.lse);
  };
}

// What the forward pass saves beside y and lse depends on the operands' types alone, and is computed once.
Run AttentionGrad(const Args& a) {
  const AttentionEntry* entry = &FindEntry(a);
  const Operands x(a, 1, 6);
  AttentionSaved saved = entry->forward(x.Get());
  saved.y = AsHeads(a.in[4]);
  saved.lse = a.in[5];
  return [=, dy = AsHeads(a.in[0]), out = a.out] {
    const auto [dq, dk, dv] = entry->backward(x.WithoutHidden(dy), x.Get(), saved);
    Store(out[0], dq);
    Store(out[1], dk);
    Store(out[2], dv);
  };
}

constexpr NamedKernel kKernels[] = {{kAttention, {Attention}}, {kAttentionGrad, {AttentionGrad}}};

}  // namespace

std::span<const NamedKernel> AttentionKernels() { return kKernels; }

}  // namespace onnxtrain::aten
