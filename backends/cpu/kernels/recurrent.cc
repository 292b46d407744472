// Recurrences: in each step one product of all samples' states with the recurrent weights, which are packed once per run,
// added onto what is there already, and one pass over the gates.
#include "backends/cpu/kernels/recurrent.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/dnnl_call.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/parallel.h"

namespace onnxtrain::cpu {

// Each works on one sample of n units.
struct RecurrentLeaf {
  void (*lstm)(float* gates, const float* c_before, float* c, float* h, int64_t n);  // gates: sums, then activated
  // The carries hold what later steps pass back, and then what this step passes on (to h: besides the product).
  void (*lstm_grad)(const float* gates, const float* c, const float* c_before, const float* dh, float* carry_h, float* carry_c,
                    float* dgates, int64_t n);
  void (*gru)(const float* x, const float* recurrent, const float* h_before, float* gates, float* h, int64_t n);
  void (*gru_grad)(const float* gates, const float* h_before, const float* dh, float* carry, float* dx, float* dr, int64_t n);
  void (*rnn_tanh)(float* h, int64_t n);
  void (*rnn_relu)(float* h, int64_t n);
  void (*rnn_tanh_grad)(const float* h, const float* dh, float* carry, float* dx, int64_t n);
  void (*rnn_relu_grad)(const float* h, const float* dh, float* carry, float* dx, int64_t n);
  void (*add_to)(const float* x, float* y, int64_t n);
};

}  // namespace onnxtrain::cpu

#define ONNXTRAIN_LEAF "backends/cpu/kernels/recurrent.leaf.inc"
#include "backends/cpu/foreach_isa.inc"

namespace onnxtrain::cpu {
namespace {

const RecurrentLeaf& Leaf() { return ONNXTRAIN_PICK(kRecurrent); }

constexpr int64_t kGateCost = 48;  // of a unit's gates, against an addition

// y[m,n] += a[m,k]·w[k,n], where w is packed first if a packed one is multiplied faster.
class StepProduct {
 public:
  StepProduct(int64_t m, int64_t k, int64_t n, const Shape& strides) {
    const auto plain = Plain({k, n}, strides);
    const auto best = Describe(m, k, n, AnyLayout({k, n}));
    const bool packs = !IsReference(best) && best.weights_desc() != plain;
    const auto desc = packs ? best : Describe(m, k, n, plain);
    product_ = std::make_shared<DnnlCall>(dnnl::matmul(desc), Arguments{{DNNL_ARG_SRC, desc.src_desc()},
                                                                        {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                                        {DNNL_ARG_DST, desc.dst_desc()},
                                                                        {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}});
    scratch_ = Aligned64(desc.scratchpad_desc().get_size());
    if (packs) MakePack(plain, desc.weights_desc());
  }

  size_t workspace() const { return packed_ + scratch_; }
  // Must run before Add, in each run. The weights and the workspace must stay.
  void Load(const float* w, std::byte* workspace) {
    scratchpad_ = workspace + packed_;
    weights_ = pack_ == nullptr ? static_cast<const void*>(w) : workspace;
    if (pack_ != nullptr) pack_->Run({w, workspace, scratchpad_});
  }
  void Add(const float* a, float* y) { product_->Run({a, weights_, y, scratchpad_}); }

 private:
  using Arguments = std::vector<std::pair<int, dnnl::memory::desc>>;

  static dnnl::matmul::primitive_desc Describe(int64_t m, int64_t k, int64_t n, const dnnl::memory::desc& weights) {
    dnnl::primitive_attr attr = UserScratchpad();
    dnnl::post_ops ops;
    ops.append_sum(1);
    attr.set_post_ops(ops);
    return {dnnl::matmul::desc(Plain({m, k}), weights, Plain({m, n})), attr, Engine()};
  }

  void MakePack(const dnnl::memory::desc& plain, const dnnl::memory::desc& packed) {
    const dnnl::reorder::primitive_desc reorder(Engine(), plain, Engine(), packed, UserScratchpad());
    pack_ = std::make_shared<DnnlCall>(dnnl::reorder(reorder), Arguments{{DNNL_ARG_FROM, plain}, {DNNL_ARG_TO, packed},
                                                                         {DNNL_ARG_SCRATCHPAD, reorder.scratchpad_desc()}});
    packed_ = Aligned64(packed.get_size());
    scratch_ = std::max(scratch_, Aligned64(reorder.scratchpad_desc().get_size()));
  }

  std::shared_ptr<DnnlCall> product_, pack_;
  size_t packed_ = 0, scratch_ = 0;
  std::byte* scratchpad_ = nullptr;
  const void* weights_ = nullptr;
};

// What all of them know.
struct Geometry {
  int64_t steps, batch, units, gates;
  bool reverse;

  int64_t at(int64_t i) const { return reverse ? steps - 1 - i : i; }
  int64_t state() const { return batch * units; }
  // What step i starts from: the state after step i − 1.
  const float* Before(int64_t i, const float* states, const float* first) const {
    return i == 0 ? first : states + at(i - 1) * state();
  }
};

// `r`: the recurrent weights [G·H,H]; `x`: any input [S,B,…].
Geometry GeometryOf(const KernelContext& c, size_t x) {
  const Shape &r = c.in(1).shape, &steps = c.in(x).shape;
  return {steps[0], steps[1], r[1], r[0] / r[1], c.attrs().Int("reverse") != 0};
}

StepProduct Forward(const Geometry& g) { return {g.batch, g.units, g.gates * g.units, {1, g.units}}; }
StepProduct Backward(const Geometry& g) { return {g.batch, g.gates * g.units, g.units, {g.units, 1}}; }

bool Active(const int64_t* lengths, int64_t sample, int64_t t) { return lengths == nullptr || t < lengths[sample]; }

void Copy(const float* from, int64_t n, float* to) { std::memcpy(to, from, n * sizeof(float)); }

// Calls f(sample) for all of them, over threads.
template <typename F>
void ForSamples(const Geometry& g, F f) {
  Parallel(g.batch, g.units * kGateCost, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) f(b);
  });
}

absl::StatusOr<Kernel> PrepareLstm(const KernelContext& c) {
  const Geometry g = GeometryOf(c, 0);
  StepProduct product = Forward(g);
  const bool has_lengths = c.has(4);
  const size_t workspace = product.workspace();
  return Kernel{.run = [g, product, has_lengths](const Args& args) mutable {
    const int64_t n = g.units;
    const int64_t* lengths = has_lengths ? args.in<int64_t>(4) : nullptr;
    product.Load(args.in(1), static_cast<std::byte*>(args.workspace));
    for (int64_t i = 0; i < g.steps; ++i) {
      const int64_t t = g.at(i), all = t * g.state();
      const float *h_before = g.Before(i, args.out(0), args.in(2)), *c_before = g.Before(i, args.out(1), args.in(3));
      float *h = args.out(0) + all, *cell = args.out(1) + all, *gates = args.out(2) + 4 * all;
      Copy(args.in(0) + 4 * all, 4 * g.state(), gates);
      product.Add(h_before, gates);
      ForSamples(g, [&](int64_t b) {
        Leaf().lstm(gates + 4 * n * b, c_before + n * b, cell + n * b, h + n * b, n);
        if (Active(lengths, b, t)) return;
        Copy(h_before + n * b, n, h + n * b);
        Copy(c_before + n * b, n, cell + n * b);
      });
    }
  }, .workspace = workspace};
}

absl::StatusOr<Kernel> PrepareLstmGrad(const KernelContext& c) {
  const Geometry g = GeometryOf(c, 0);
  StepProduct product = Backward(g);
  const bool has_lengths = c.has(5), has_dc = c.has(6);
  const size_t workspace = product.workspace();
  return Kernel{.run = [g, product, has_lengths, has_dc](const Args& args) mutable {
    const int64_t n = g.units;
    const int64_t* lengths = has_lengths ? args.in<int64_t>(5) : nullptr;
    product.Load(args.in(1), static_cast<std::byte*>(args.workspace));
    float *carry_h = args.out(1), *carry_c = args.out(2);  // in the end, the gradients of the initial states
    std::fill_n(carry_h, g.state(), 0.0f);
    std::fill_n(carry_c, g.state(), 0.0f);
    for (int64_t i = g.steps - 1; i >= 0; --i) {
      const int64_t t = g.at(i), all = t * g.state();
      const float *c_before = g.Before(i, args.in(3), args.in(2)), *dh = args.in(0) + all;
      float* dgates = args.out(0) + 4 * all;
      ForSamples(g, [&](int64_t b) {
        const int64_t at = n * b;
        if (has_dc) Leaf().add_to(args.in(6) + all + at, carry_c + at, n);
        if (Active(lengths, b, t)) {
          Leaf().lstm_grad(args.in(4) + 4 * (all + at), args.in(3) + all + at, c_before + at, dh + at, carry_h + at, carry_c + at,
                           dgates + 4 * at, n);
          return;
        }
        Leaf().add_to(dh + at, carry_h + at, n);
        std::fill_n(dgates + 4 * at, 4 * n, 0.0f);
      });
      product.Add(dgates, carry_h);
    }
  }, .workspace = workspace};
}

absl::StatusOr<Kernel> PrepareGru(const KernelContext& c) {
  const Geometry g = GeometryOf(c, 0);
  StepProduct product = Forward(g);
  const bool has_lengths = c.has(4);
  const size_t sums = product.workspace(), workspace = sums + 3 * g.state() * sizeof(float);
  return Kernel{.run = [g, product, has_lengths, sums](const Args& args) mutable {
    const int64_t n = g.units;
    const int64_t* lengths = has_lengths ? args.in<int64_t>(4) : nullptr;
    auto* bytes = static_cast<std::byte*>(args.workspace);
    auto* recurrent = reinterpret_cast<float*>(bytes + sums);
    product.Load(args.in(1), bytes);
    for (int64_t i = 0; i < g.steps; ++i) {
      const int64_t t = g.at(i), all = t * g.state();
      const float* h_before = g.Before(i, args.out(0), args.in(3));
      for (int64_t b = 0; b < g.batch; ++b) Copy(args.in(2), 3 * n, recurrent + 3 * n * b);
      product.Add(h_before, recurrent);
      ForSamples(g, [&](int64_t b) {
        float* h = args.out(0) + all + n * b;
        Leaf().gru(args.in(0) + 3 * (all + n * b), recurrent + 3 * n * b, h_before + n * b, args.out(1) + 4 * (all + n * b), h, n);
        if (!Active(lengths, b, t)) Copy(h_before + n * b, n, h);
      });
    }
  }, .workspace = workspace};
}

absl::StatusOr<Kernel> PrepareGruGrad(const KernelContext& c) {
  const Geometry g = GeometryOf(c, 0);
  StepProduct product = Backward(g);
  const bool has_lengths = c.has(5);
  const size_t workspace = product.workspace();
  return Kernel{.run = [g, product, has_lengths](const Args& args) mutable {
    const int64_t n = g.units;
    const int64_t* lengths = has_lengths ? args.in<int64_t>(5) : nullptr;
    product.Load(args.in(1), static_cast<std::byte*>(args.workspace));
    float* carry = args.out(2);
    std::fill_n(carry, g.state(), 0.0f);
    for (int64_t i = g.steps - 1; i >= 0; --i) {
      const int64_t t = g.at(i), all = t * g.state();
      const float *h_before = g.Before(i, args.in(3), args.in(2)), *dh = args.in(0) + all;
      float *dx = args.out(0) + 3 * all, *dr = args.out(1) + 3 * all;
      ForSamples(g, [&](int64_t b) {
        const int64_t at = n * b;
        if (Active(lengths, b, t)) {
          Leaf().gru_grad(args.in(4) + 4 * (all + at), h_before + at, dh + at, carry + at, dx + 3 * at, dr + 3 * at, n);
          return;
        }
        Leaf().add_to(dh + at, carry + at, n);
        std::fill_n(dx + 3 * at, 3 * n, 0.0f);
        std::fill_n(dr + 3 * at, 3 * n, 0.0f);
      });
      product.Add(dr, carry);
    }
  }, .workspace = workspace};
}

absl::StatusOr<Kernel> PrepareRnn(const KernelContext& c) {
  const Geometry g = GeometryOf(c, 0);
  StepProduct product = Forward(g);
  const bool has_lengths = c.has(3);
  const auto activate = c.attrs().String("activation") == "Relu" ? Leaf().rnn_relu : Leaf().rnn_tanh;
  const size_t workspace = product.workspace();
  return Kernel{.run = [g, product, has_lengths, activate](const Args& args) mutable {
    const int64_t n = g.units;
    const int64_t* lengths = has_lengths ? args.in<int64_t>(3) : nullptr;
    product.Load(args.in(1), static_cast<std::byte*>(args.workspace));
    for (int64_t i = 0; i < g.steps; ++i) {
      const int64_t t = g.at(i), all = t * g.state();
      const float* h_before = g.Before(i, args.out(0), args.in(2));
      float* h = args.out(0) + all;
      Copy(args.in(0) + all, g.state(), h);
      product.Add(h_before, h);
      ForSamples(g, [&](int64_t b) {
        if (Active(lengths, b, t)) {
          activate(h + n * b, n);
        } else {
          Copy(h_before + n * b, n, h + n * b);
        }
      });
    }
  }, .workspace = workspace};
}

absl::StatusOr<Kernel> PrepareRnnGrad(const KernelContext& c) {
  const Geometry g = GeometryOf(c, 0);
  StepProduct product = Backward(g);
  const bool has_lengths = c.has(3);
  const auto step = c.attrs().String("activation") == "Relu" ? Leaf().rnn_relu_grad : Leaf().rnn_tanh_grad;
  const size_t workspace = product.workspace();
  return Kernel{.run = [g, product, has_lengths, step](const Args& args) mutable {
    const int64_t n = g.units;
    const int64_t* lengths = has_lengths ? args.in<int64_t>(3) : nullptr;
    product.Load(args.in(1), static_cast<std::byte*>(args.workspace));
    float* carry = args.out(1);
    std::fill_n(carry, g.state(), 0.0f);
    for (int64_t i = g.steps - 1; i >= 0; --i) {
      const int64_t t = g.at(i), all = t * g.state();
      float* dx = args.out(0) + all;
      ForSamples(g, [&](int64_t b) {
        const int64_t at = n * b;
        if (Active(lengths, b, t)) {
          step(args.in(2) + all + at, args.in(0) + all + at, carry + at, dx + at, n);
          return;
        }
        Leaf().add_to(args.in(0) + all + at, carry + at, n);
        std::fill_n(dx + at, n, 0.0f);
      });
      product.Add(dx, carry);
    }
  }, .workspace = workspace};
}

}  // namespace

std::span<const KernelRow> RecurrentKernels() {
  constexpr TypeSet kTypes = kFloat | Only(DType::kInt64);  // the lengths
  static constexpr KernelRow kRows[] = {
      {"Lstm", PrepareLstm, kTypes}, {"LstmGrad", PrepareLstmGrad, kTypes}, {"Gru", PrepareGru, kTypes},
      {"GruGrad", PrepareGruGrad, kTypes}, {"Rnn", PrepareRnn, kTypes}, {"RnnGrad", PrepareRnnGrad, kTypes},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
