// Products, norms, softmax, attention, losses, dropout.
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "frontend/ops/dequantize.h"
#include "frontend/ops/random.h"
#include "reference.h"

namespace onnxtrain::cases {
namespace {

TensorVector MatMul(const Operands& a) {
  auto operand = [&](size_t i, const char* name) { return a.attrs().Int(name) ? a[i].transpose(-2, -1) : a[i]; };
  return {operand(0, "trans_a").matmul(operand(1, "trans_b"))};
}

// Numbers of `bits` of each row, the first in the lowest bits of a byte.
at::Tensor Numbers(const at::Tensor& rows, int64_t bits, int64_t columns) {
  if (rows.is_floating_point()) return rows.narrow(1, 0, columns);
  const at::Tensor bytes = rows.to(at::kLong);
  std::vector<at::Tensor> parts;
  for (int64_t shift = 0; bits < 8 && shift < 8; shift += bits)
    parts.push_back(bytes.div(int64_t{1} << shift, "floor").remainder(int64_t{1} << bits));
  return (parts.empty() ? bytes : at::stack(parts, 2).reshape({rows.size(0), -1})).narrow(1, 0, columns);
}

// The matrix whose operands start at input `first`, by the index of each element's block.
at::Tensor DequantizedMatrix(const Operands& a, size_t first) {
  const int64_t rows = a[first].size(0), columns = a.attrs().Int("columns");
  const std::vector<int64_t> block = a.attrs().Ints("block");
  const at::Tensor i = at::arange(rows).div(block[0], "floor"), j = at::arange(columns).div(block[1], "floor");
  const auto spread = [&](const at::Tensor& x) { return x.index_select(0, i).index_select(1, j); };
  const at::Tensor stored = Numbers(a[first], a.attrs().Int("bits"), columns), scale = a[first + 1];
  const bool nf4 = a.attrs().String("code") == "nf4";
  const at::Tensor code = at::tensor(at::ArrayRef<float>(kNf4.data(), kNf4.size())).to(at::kDouble);
  const at::Tensor numbers = nf4 ? code.index({stored.to(at::kLong)}) : stored.to(at::kDouble);
  const bool has_zero = a[first + 2].defined();
  const bool is_packed = has_zero && !IsFloat(a.c.inputs[first + 2].type.dtype);
  if (!has_zero) return (numbers - a.attrs().Float("zero")) * spread(scale);
  const at::Tensor zero = is_packed ? Numbers(a[first + 2], a.attrs().Int("zero_bits"), scale.size(1)) : a[first + 2];
  return (numbers - spread(zero.to(at::kDouble))) * spread(scale);
}

TensorVector Dequantize(const Operands& a) { return {DequantizedMatrix(a, 0)}; }

TensorVector MatMulDequantized(const Operands& a) {
  const at::Tensor w = DequantizedMatrix(a, 1);
  return {a[0].matmul(a.attrs().Int("transposed") != 0 ? w.t() : w)};
}

// Repeats the rows of x for `ids` indices.
at::Tensor Repeated(const at::Tensor& x, const at::Tensor& ids) {
  return x.repeat_interleave(ids.size(0) / x.size(0), 0);
}

TensorVector GroupedMatMul(const Operands& a) {
  const int64_t groups = a.attrs().Int("groups");
  const at::Tensor matrices = DequantizedMatrix(a, 2), stack = matrices.view({groups, -1, matrices.size(1)});
  const at::Tensor chosen = stack.index_select(0, a[1].remainder(groups));
  const at::Tensor x = Repeated(a[0], a[1]).unsqueeze(1);
  return {x.bmm(a.attrs().Int("transposed") != 0 ? chosen.transpose(1, 2) : chosen).squeeze(1)};
}

TensorVector GroupedMatMulWeightGrad(const Operands& a) {
  const int64_t groups = a.attrs().Int("groups");
  const at::Tensor chosen = at::one_hot(a[2].remainder(groups), groups).to(at::kDouble);
  return {at::einsum("rg,rp,rq->gpq", {chosen, Repeated(a[0], a[2]), Repeated(a[1], a[2])}).flatten(0, 1)};
}

// [C] against [N,C,…]
at::Tensor Channel(const at::Tensor& v, const at::Tensor& x) {
  std::vector<int64_t> shape(x.dim(), 1);
  shape[1] = x.size(1);
  return v.view(shape);
}

at::Tensor Rstd(const at::Tensor& x, const std::vector<int64_t>& axes, double epsilon, bool keep) {
  return (x.var(at::IntArrayRef(axes), /*unbiased=*/false, keep) + epsilon).rsqrt();
}

TensorVector BatchNorm(const Operands& a) {
  const double epsilon = a.attrs().Float("epsilon");
  std::vector<int64_t> axes = {0};
  for (int64_t i = 2; i < a[0].dim(); ++i) axes.push_back(i);
  return {at::batch_norm(a[0], a[1], a[2], {}, {}, true, 0, epsilon, false), a[0].mean(axes),
          Rstd(a[0], axes, epsilon, false)};
}

TensorVector BatchNormInference(const Operands& a) {
  const at::Tensor& x = a.x[0];
  const at::Tensor rstd = (Channel(a[4], x) + a.attrs().Float("epsilon")).rsqrt();
  return {(x - Channel(a[3], x)) * rstd * Channel(a[1], x) + Channel(a[2], x)};
}

std::vector<int64_t> RowAxes(const Operands& a) {
  std::vector<int64_t> axes;
  for (int64_t i = a.attrs().Int("axis"); i < a[0].dim(); ++i) axes.push_back(i);
  return axes;
}

TensorVector LayerNorm(const Operands& a) {
  const double epsilon = a.attrs().Float("epsilon");
  const std::vector<int64_t> axes = RowAxes(a);
  at::Tensor y = at::layer_norm(a[0], a[0].sizes().slice(a.attrs().Int("axis")), a[1], {}, epsilon, false);
  if (a[2].defined()) y = y + a[2];
  return {y, a[0].mean(axes, true), Rstd(a[0], axes, epsilon, true)};
}

TensorVector RmsNorm(const Operands& a) {
  const std::vector<int64_t> axes = RowAxes(a);
  const at::Tensor rstd = ((a[0] * a[0]).mean(axes, true) + a.attrs().Float("epsilon")).rsqrt();
  return {a[0] * rstd * a[1], rstd};
}

TensorVector RmsNormGrad(const Operands& a) {
  const at::Tensor n = a[1] * a[3], g = a[0] * a[2];
  const at::Tensor dx = a[3] * (g - n * (g * n).mean(RowAxes(a), true));
  return {dx, (a[0] * n).sum_to_size(a[2].sizes())};
}

TensorVector Softmax(const Operands& a) { return {at::softmax(a[0], a.attrs().Int("axis"))}; }
TensorVector LogSoftmax(const Operands& a) { return {at::log_softmax(a[0], a.attrs().Int("axis"))}; }

// Written out: y is a variable of its own here.
TensorVector SoftmaxGrad(const Operands& a) { return {a[1] * (a[0] - (a[0] * a[1]).sum(a.attrs().Int("axis"), true))}; }
TensorVector LogSoftmaxGrad(const Operands& a) { return {a[0] - a[1].exp() * a[0].sum(a.attrs().Int("axis"), true)}; }

// All zero in rows that the mask hides entirely.
at::Tensor Probabilities(at::Tensor scores, const at::Tensor& mask) {
  if (mask.defined()) scores = scores + mask;
  const at::Tensor hidden = scores.isneginf().all(-1, true);
  return at::softmax(scores.masked_fill(hidden, 0), -1).masked_fill(hidden, 0);
}

// The factors of a dropout of x, by the specification's scalar functions, on the host.
at::Tensor DropoutFactors(const Operands& a, const at::Tensor& x, at::Tensor key) {
  key = key.contiguous();
  const PhiloxKey philox = PhiloxKey::From(static_cast<const uint32_t*>(key.data_ptr()));
  const double ratio = a.attrs().Float("ratio");
  at::Tensor factors = at::zeros(x.sizes(), x.options().requires_grad(false));
  const auto first = static_cast<int64_t>(FirstElement(philox.piece, x.numel()));
  for (int64_t i = 0; i < x.numel(); ++i) {
    const bool keep =
        WordToUniform(RandomWord(philox, a.attrs().Int("stream"), first + i)) >= static_cast<float>(ratio);
    static_cast<double*>(factors.data_ptr())[i] = keep;
  }
  return factors / (1 - ratio);
}

TensorVector Dropout(const Operands& a) { return {a[0] * DropoutFactors(a, a[0], a[1])}; }

at::Tensor DropProbabilities(const Operands& a, const at::Tensor& p, const at::Tensor& key) {
  return key.defined() ? p * DropoutFactors(a, p, key) : p;
}

at::Tensor Scores(const Operands& a, const at::Tensor& q, const at::Tensor& k) {
  const at::Tensor scores = q.matmul(k.transpose(-2, -1)) * a.attrs().Float("scale", 1);
  const double cap = a.attrs().Float("softcap", 0);
  return cap == 0 ? scores : (scores / cap).tanh() * cap;
}

TensorVector Attention(const Operands& a) {
  return {DropProbabilities(a, Probabilities(Scores(a, a[0], a[1]), a[3]), a[4]).matmul(a[2])};
}

TensorVector AttentionGrad(const Operands& a) {
  const double cap = a.attrs().Float("softcap", 0);
  const at::Tensor scores = Scores(a, a[1], a[2]);
  const at::Tensor p = Probabilities(scores, a[4]);
  const at::Tensor dp = DropProbabilities(a, a[0].matmul(a[3].transpose(-2, -1)), a[5]);
  at::Tensor ds = p * (dp - (p * dp).sum(-1, true)) * a.attrs().Float("scale", 1);
  if (cap != 0) ds = ds * (1 - (scores / cap).square());
  return {ds.matmul(a[2]), ds.transpose(-2, -1).matmul(a[1]),
          DropProbabilities(a, p, a[5]).transpose(-2, -1).matmul(a[0])};
}

// Clamped, but for those that are ignored.
at::Tensor SafeLabels(const at::Tensor& labels, int64_t classes, int64_t ignore) {
  return at::where(labels.eq(ignore), labels, labels.clamp(0, classes - 1));
}

TensorVector CrossEntropy(const Operands& a) {
  const int64_t ignore = a.attrs().Int("ignore_index", -100);
  return {at::cross_entropy_loss(a[0], SafeLabels(a[1], a[0].size(1), ignore), {}, /*reduction=*/0, ignore,
                                 a.attrs().Float("label_smoothing")),
          at::log_softmax(a[0], 1)};
}

TensorVector CrossEntropyGrad(const Operands& a) {
  const int64_t classes = a[1].size(1), ignore = a.attrs().Int("ignore_index", -100);
  const double smoothing = a.attrs().Float("label_smoothing");
  const at::Tensor hot = at::one_hot(a[2].clamp(0, classes - 1), classes).movedim(-1, 1).to(at::kDouble);
  const at::Tensor target = hot * (1 - smoothing) + smoothing / static_cast<double>(classes);
  return {(a[1].exp() - target) * (a[0] * a[2].ne(ignore)).unsqueeze(1)};
}

TensorVector BinaryCrossEntropy(const Operands& a) {
  return {at::binary_cross_entropy_with_logits(a[0], a[1], {}, {}, /*reduction=*/0)};
}

}  // namespace

References NeuralReferences() {
  return {
      {"MatMul", MatMul},
      {"Dequantize", Dequantize},
      {"MatMulDequantized", MatMulDequantized},
      {"GroupedMatMul", GroupedMatMul},
      {"GroupedMatMulWeightGrad", GroupedMatMulWeightGrad},
      {"BatchNorm", BatchNorm},
      {"BatchNormInference", BatchNormInference},
      {"LayerNorm", LayerNorm},
      {"RmsNorm", RmsNorm},
      {"RmsNormGrad", RmsNormGrad},
      {"Softmax", Softmax},
      {"LogSoftmax", LogSoftmax},
      {"SoftmaxGrad", SoftmaxGrad},
      {"LogSoftmaxGrad", LogSoftmaxGrad},
      {"Attention", Attention},
      {"AttentionGrad", AttentionGrad},
      {"CrossEntropy", CrossEntropy},
      {"CrossEntropyGrad", CrossEntropyGrad},
      {"BinaryCrossEntropyWithLogits", BinaryCrossEntropy},
      {"Dropout", Dropout},
  };
}

}  // namespace onnxtrain::cases
