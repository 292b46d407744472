// Compares attention over heads in the layout of the projections, [B, S, H, D], with oneDNN's matmul, softmax and
// matmul. Both gradients recompute the probabilities.
#include <cmath>

#include "backends/cpu/bench/run_node.h"
#include "frontend/base/strings.h"

namespace onnxtrain::bench {
namespace {

using Desc = dnnl::memory::desc;
using dnnl::memory;

struct Case {
  int64_t batch, length, heads, width;

  Type type(DType dtype) const { return {dtype, {batch, length, heads, width}}; }
  // Returns the operations of `products` products of all queries and keys.
  double operations(int products) const {
    return 2.0 * products * static_cast<double>(batch * heads * width) * static_cast<double>(length * length);
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(width)); }
};

// Returns attributes that permute all operands and results between [B, S, H, D] and [B, H, S, D].
Attrs HeadAttrs(const Case& c, int operands) {
  std::vector<int64_t> perms;
  for (int i = 0; i < operands; ++i) perms.insert(perms.end(), {0, 2, 1, 3});
  return {{"scale", double{c.scale()}}, {"perms", perms}};
}

// Makes primitives over [B, H, S, …] for one case and element type.
class Heads {
 public:
  Heads(const Case& c, DType dtype)
      : scale_(c.scale()),
        rows_({c.batch, c.heads, c.length, c.width}, cpu::DnnlType(dtype),
              {c.length * c.heads * c.width, c.width, c.heads * c.width, 1}),
        scores_({c.batch, c.heads, c.length, c.length}, cpu::DnnlType(dtype), memory::format_tag::abcd) {}

  memory MakeRows() const { return DnnlSequence::MakeMemory(rows_); }
  memory MakeScores() const { return DnnlSequence::MakeMemory(scores_); }

  // Adds c = a·b, or c = scale·a·b if `scaled`; transposed operands are views.
  void Multiply(const memory& a, const memory& b, const memory& c, bool scaled = false) {
    dnnl::primitive_attr attr;
    if (scaled) attr.set_output_scales(0, {scale_});
    const dnnl::matmul::primitive_desc desc({a.get_desc(), b.get_desc(), c.get_desc()}, attr, cpu::Engine());
    sequence_->Add(dnnl::matmul(desc), {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
  }

  void Softmax(const memory& scores) {
    sequence_->Add(dnnl::softmax_forward(SoftmaxDesc()), {{DNNL_ARG_SRC, scores}, {DNNL_ARG_DST, scores}});
  }

  // Adds the gradient of the scores, in place in `grad`.
  void SoftmaxGrad(const memory& probabilities, const memory& grad) {
    const dnnl::softmax_backward::primitive_desc desc({scores_, scores_, kAxis}, cpu::Engine(), SoftmaxDesc());
    sequence_->Add(dnnl::softmax_backward(desc),
                   {{DNNL_ARG_DST, probabilities}, {DNNL_ARG_DIFF_DST, grad}, {DNNL_ARG_DIFF_SRC, grad}});
  }

  static memory Transpose(const memory& m) {
    return {m.get_desc().permute_axes({0, 1, 3, 2}), cpu::Engine(), m.get_data_handle()};
  }

  // Returns a run that owns this memory.
  Run MakeRun(std::vector<memory> owned) {
    return [sequence = sequence_, owned = std::move(owned)] { sequence->Run(); };
  }

 private:
  static constexpr int kAxis = 3;

  dnnl::softmax_forward::primitive_desc SoftmaxDesc() const {
    return {{dnnl::prop_kind::forward_training, scores_, kAxis}, cpu::Engine()};
  }

  float scale_;
  Desc rows_, scores_;
  std::shared_ptr<DnnlSequence> sequence_ = std::make_shared<DnnlSequence>();
};

Run MakeOneDnnForward(const Case& c, DType dtype) {
  Heads heads(c, dtype);
  const memory q = heads.MakeRows(), k = heads.MakeRows(), v = heads.MakeRows(), y = heads.MakeRows(),
               scores = heads.MakeScores();
  heads.Multiply(q, Heads::Transpose(k), scores, true);
  heads.Softmax(scores);
  heads.Multiply(scores, v, y);
  return heads.MakeRun({q, k, v, y, scores});
}

Run MakeOneDnnBackward(const Case& c, DType dtype) {
  Heads heads(c, dtype);
  const memory dy = heads.MakeRows(), q = heads.MakeRows(), k = heads.MakeRows(), v = heads.MakeRows(),
               dq = heads.MakeRows(), dk = heads.MakeRows(), dv = heads.MakeRows(), scores = heads.MakeScores(),
               grad = heads.MakeScores();
  heads.Multiply(q, Heads::Transpose(k), scores, true);
  heads.Softmax(scores);
  heads.Multiply(Heads::Transpose(scores), dy, dv);
  heads.Multiply(dy, Heads::Transpose(v), grad);
  heads.SoftmaxGrad(scores, grad);
  heads.Multiply(grad, k, dq, true);
  heads.Multiply(Heads::Transpose(grad), q, dk, true);
  return heads.MakeRun({dy, q, k, v, dq, dk, dv, scores, grad});
}

void CompareCase(const Case& c, DType dtype) {
  const Type x = c.type(dtype);
  Compare(
      StrCat("attention/forward ", ToString(x)),
      [=] {
        return MakeNodeRun("cpu.Attention", {x, x, x}, HeadAttrs(c, 4));
      },
      [=] { return MakeOneDnnForward(c, dtype); }, c.operations(2));
  Compare(
      StrCat("attention/backward ", ToString(x)),
      [=] {
        const Type softmax{DType::kFloat32, {c.batch, c.heads, 2, c.length}};
        return MakeNodeRun("cpu.AttentionGrad", {x, x, x, x, x, {}, {}, {}, softmax}, HeadAttrs(c, 8));
      },
      [=] { return MakeOneDnnBackward(c, dtype); }, c.operations(5));
}

}  // namespace

void CompareAttention() {
  for (const Case& c : {Case{8, 128, 12, 64}, Case{2, 256, 12, 64}, Case{1, 1024, 12, 64}}) {
    CompareCase(c, DType::kFloat32);
    if (cpu::HasBFloat16()) CompareCase(c, DType::kBFloat16);
  }
  for (const Case& c : {Case{1, 512, 16, 32}, Case{1, 512, 8, 128}, Case{1, 4096, 4, 32}, Case{1, 4096, 2, 64},
                        Case{1, 4096, 2, 128}}) {
    if (cpu::HasBFloat16()) CompareCase(c, DType::kBFloat16);
  }
}

}  // namespace onnxtrain::bench
