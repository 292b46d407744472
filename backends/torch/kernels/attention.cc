// Kernels of torch.Attention and torch.AttentionGrad.
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

// Returns a stored tensor, permuted by `perm` to the operand of the operator, as heads.
at::Tensor ViewInput(const at::Tensor& stored, const std::vector<int64_t>& perm) {
  return AsHeads(stored.permute(perm));
}

// Returns an output that is stored permuted, as heads; undefined if it is unused.
at::Tensor ViewOutput(const at::Tensor& stored, const std::vector<int64_t>& perm) {
  if (!stored.defined()) return stored;
  std::vector<int64_t> back(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) back[perm[i]] = static_cast<int64_t>(i);
  return AsHeads(stored.permute(back));
}

bool IsConstant(const Args& a, size_t i) {
  const Node* producer = a.has(i) ? a.graph.producer(a.node.inputs[i]) : nullptr;
  return producer != nullptr && producer->op == "Constant";
}

// The operands of an attention kernel, made from the inputs of a node. A constant mask is converted only once.
class Operands {
 public:
  Operands(const Args& a, size_t first, size_t mask, const std::vector<std::vector<int64_t>>& perms)
      : mask_(a.In(mask)),
        rank_(a.in[first].dim()),
        may_hide_all_(a.attrs().Int("may_hide_all") != 0),
        fixed_{ViewInput(a.in[first], perms[first]),
               ViewInput(a.in[first + 1], perms[first + 1]),
               ViewInput(a.in[first + 2], perms[first + 2]),
               {},
               a.attrs().Float("scale"),
               a.attrs().Int("causal") != 0} {
    if (!IsConstant(a, mask)) return;
    fixed_.mask = AsHeadMask(mask_, rank_, fixed_.q, fixed_.k);
    if (may_hide_all_) hidden_ = FindHidden(mask_, rank_);
  }

  AttentionOperands Get() const {
    AttentionOperands x = fixed_;
    if (mask_.defined() && !x.mask.defined()) x.mask = AsHeadMask(mask_, rank_, x.q, x.k);
    return x;
  }
  // Zeros the rows of queries whose keys are all masked: they have zeros in y, and no gradient.
  at::Tensor WithoutHidden(const at::Tensor& rows) const {
    if (!may_hide_all_) return rows;
    return rows.masked_fill(hidden_.defined() ? hidden_ : FindHidden(mask_, rank_), 0);
  }

 private:
  at::Tensor mask_;
  int64_t rank_;
  bool may_hide_all_;
  AttentionOperands fixed_;  // no mask if each run must convert it
  at::Tensor hidden_;        // FindHidden of a constant mask
};

void Store(const at::Tensor& to, const at::Tensor& from) {
  if (to.defined()) to.copy_(from);
}

Run Attention(const Args& a) {
  const auto perms = SplitPerms(a.attrs(), a.in[0].dim());
  const at::Tensor lse = a.out[1].defined() ? a.out[1].view(a.attrs().Ints("lse_shape")) : at::Tensor();
  return [entry = &FindEntry(a), x = Operands(a, 0, 3, perms), y = ViewOutput(a.out[0], perms[3]), lse] {
    const AttentionSaved saved = entry->forward(x.Get());
    Store(y, x.WithoutHidden(saved.y));
    Store(lse, saved.lse);
  };
}

// Saved tensors other than y and lse depend only on the operands' types, so they are computed once, when preparing.
Run AttentionGrad(const Args& a) {
  const auto perms = SplitPerms(a.attrs(), a.in[1].dim());
  const AttentionEntry* entry = &FindEntry(a);
  const Operands x(a, 1, 6, perms);
  AttentionSaved saved = entry->forward(x.Get());
  saved.y = ViewInput(a.in[4], perms[4]);
  saved.lse = a.in[5];
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < a.out.size(); ++i) out.push_back(ViewOutput(a.out[i], perms[5 + i]));
  return [=, dy = ViewInput(a.in[0], perms[0])] {
    const auto [dq, dk, dv] = entry->backward(x.WithoutHidden(dy), x.Get(), saved);
    Store(out[0], dq);
    Store(out[1], dk);
    Store(out[2], dv);
  };
}

}  // namespace

std::span<const NamedKernel> AttentionKernels() {
  static constexpr NamedKernel kKernels[] = {{kAttention, {Attention}}, {kAttentionGrad, {AttentionGrad}}};
  return kKernels;
}

}  // namespace onnxtrain::aten
