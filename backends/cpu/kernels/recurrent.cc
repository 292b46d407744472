// Computes LSTM, GRU and RNN: each step multiplies the states of all samples by the recurrent weights and makes one
// pass over the gates.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

class RecurrentGemm {
 public:
  // y [rows,n] = a [rows,k]·weights [k,n], which have these strides; `adds` accumulates into y.
  struct Spec {
    int64_t rows, k, n;
    Shape strides;
    bool adds;
  };

  // Each of `blocks` blocks has spec.rows rows. Several blocks may be multiplied concurrently, each by one thread; a
  // single block uses all threads.
  RecurrentGemm(const Spec& spec, int64_t blocks);

  size_t workspace() const { return packed_ + calls_.size() * scratch_; }
  // Packs the weights if that is faster. Each run of the kernel calls it before Run; weights and workspace must outlive
  // the run.
  void Load(const float* weights, std::byte* workspace);
  // Computes y[rows,n] = a[rows,k]·weights for this block, in the calling thread.
  void Run(int64_t block, const float* a, float* y) {
    calls_[block].Run({a, weights_, y, scratchpad_ + block * scratch_});
  }

 private:
  std::vector<DnnlCall> calls_;      // by block
  std::optional<DnnlCall> pack_;     // none if the weights are not packed
  size_t packed_ = 0, scratch_ = 0;  // bytes
  std::byte* scratchpad_ = nullptr;
  const void* weights_ = nullptr;
};

dnnl::matmul::primitive_desc Describe(const RecurrentGemm::Spec& spec, const dnnl::memory::desc& weights) {
  dnnl::primitive_attr attr = UserScratchpad();
  if (spec.adds) {
    dnnl::post_ops ops;
    ops.append_sum(1);
    attr.set_post_ops(ops);
  }
  return {dnnl::matmul::desc(Plain({spec.rows, spec.k}), weights, Plain({spec.rows, spec.n})), attr, Engine()};
}

// Sets the number of threads to 1 in its scope: primitives run in the number of threads with which they were created.
class OneThread {
 public:
  OneThread() { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;

 private:
  const int threads_ = omp_get_max_threads();
};

RecurrentGemm::RecurrentGemm(const Spec& spec, int64_t blocks) {
  std::unique_ptr<OneThread> alone = blocks > 1 ? std::make_unique<OneThread>() : nullptr;
  const auto plain = Plain({spec.k, spec.n}, spec.strides);
  const auto best = Describe(spec, AnyLayout({spec.k, spec.n}));
  const bool packs = !IsReference(best) && best.weights_desc() != plain;
  const auto desc = packs ? best : Describe(spec, plain);
  const dnnl::matmul product(desc);
  for (int64_t b = 0; b < blocks; ++b) {
    calls_.emplace_back(product,
                        std::vector<std::pair<int, dnnl::memory::desc>>{{DNNL_ARG_SRC, desc.src_desc()},
                                                                        {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                                        {DNNL_ARG_DST, desc.dst_desc()},
                                                                        {DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc()}});
  }
  scratch_ = Aligned64(desc.scratchpad_desc().get_size());
  alone.reset();
  if (!packs) return;
  Reorder reorder = MakeReorder(plain, desc.weights_desc());
  pack_.emplace(std::move(reorder.call));
  packed_ = Aligned64(desc.weights_desc().get_size());
  scratch_ = std::max(scratch_, Aligned64(reorder.scratch));
}

void RecurrentGemm::Load(const float* weights, std::byte* workspace) {
  scratchpad_ = workspace + packed_;
  weights_ = !pack_ ? static_cast<const void*>(weights) : workspace;
  if (pack_) pack_->Run({weights, workspace, scratchpad_});
}

}  // namespace

// Functions over the n units of one sample. They add x to the product in `gates`, `recurrent` or `h`.
struct RecurrentSimd {
  void (*lstm)(const float* x, const float* c_before, float* gates, float* c, float* h, int64_t n);
  // The carries have the gradients of the states after the step and are replaced by those before it; carry_h lacks the
  // product.
  void (*lstm_grad)(const float* gates, const float* c, const float* c_before, const float* dh, float* carry_h,
                    float* carry_c, float* dgates, int64_t n);
  void (*gru)(const float* x, const float* recurrent, const float* bias, const float* h_before, float* gates, float* h,
              int64_t n);
  void (*gru_grad)(const float* gates, const float* h_before, const float* dh, float* carry, float* dx, float* dr,
                   int64_t n);
  void (*rnn[2])(const float* x, float* h, int64_t n);  // tanh, ReLU
  void (*rnn_grad[2])(const float* h, const float* dh, float* carry, float* dx, int64_t n);
  void (*add_to)(const float* x, float* y, int64_t n);
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/recurrent-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/recurrent-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(RecurrentTable);

namespace {

const RecurrentSimd& Simd() { return HWY_DYNAMIC_DISPATCH(RecurrentTable)(); }

constexpr int64_t kGateCost = 48;   // additions per unit and step
constexpr int64_t kMinSamples = 8;  // least samples of a block: fewer would make thin products

// The geometry of a recurrence.
struct Recurrence {
  int64_t steps, batch, units, gates;
  bool reverse, has_lengths, has_cell_gradients, relu;
  // Samples are independent. With enough of them, each thread runs all steps of a block of samples without
  // synchronization; otherwise all threads work on each step.
  int64_t blocks;

  int64_t samples() const { return batch / blocks; }  // samples of a block
};

int64_t CountBlocks(int64_t batch) {
  const int64_t threads = omp_get_max_threads();
  return batch % threads == 0 && batch / threads >= kMinSamples ? threads : 1;
}

// A sample at a step; `row` indexes tensors [steps·batch,…].
struct Place {
  int64_t step, sample, row;
  int64_t before;  // row of the state before the step; −1: the initial state
};

Place GetPlace(const Recurrence& r, int64_t i, int64_t sample) {
  const auto row = [&](int64_t k) { return (r.reverse ? r.steps - 1 - k : k) * r.batch + sample; };
  return {row(i) / r.batch, sample, row(i), i == 0 ? -1 : row(i - 1)};
}

// The base of the kinds of recurrence. A step computes the product To = From·weights and then Run in the forward pass,
// Run and then the product in the backward pass. Skip replaces Run beyond the length of a sample.
struct Cell {
  const Recurrence& r;
  const Args& args;
  float* scratch;  // [batch, kScratch·units]

  // Return rows of width·units elements of input i and output o.
  const float* In(size_t i, int64_t row, int64_t width = 1) const { return args.in(i) + row * width * r.units; }
  float* Out(size_t o, int64_t row, int64_t width = 1) const { return args.out(o) + row * width * r.units; }
  const float* Before(const float* states, size_t initial, const Place& at) const {
    return at.before < 0 ? In(initial, at.sample) : states + at.before * r.units;
  }
  void Copy(const float* from, float* to) const { std::memcpy(to, from, r.units * sizeof(float)); }
  void Zero(float* to, int64_t width) const { std::fill_n(to, width * r.units, 0.0f); }
};

struct Lstm : Cell {
  static constexpr bool kForward = true;
  static constexpr size_t kLengths = 4, kScratch = 0;
  static constexpr std::array<size_t, 0> kCarries = {};

  const float* From(const Place& at) const { return Before(args.out(0), 2, at); }
  const float* CellBefore(const Place& at) const { return Before(args.out(1), 3, at); }
  float* To(const Place& at) const { return Out(2, at.row, 4); }
  void Run(const Place& at) const {
    Simd().lstm(In(0, at.row, 4), CellBefore(at), To(at), Out(1, at.row), Out(0, at.row), r.units);
  }
  void Skip(const Place& at) const {
    Run(at);
    Copy(From(at), Out(0, at.row));
    Copy(CellBefore(at), Out(1, at.row));
  }
};

struct LstmGrad : Cell {
  static constexpr bool kForward = false;
  static constexpr size_t kLengths = 5, kScratch = 0;
  static constexpr std::array<size_t, 2> kCarries = {1, 2};  // after all steps, the gradients of the initial states

  const float* From(const Place& at) const { return Out(0, at.row, 4); }
  float* To(const Place& at) const { return Out(1, at.sample); }
  void Run(const Place& at) const {
    AddCellGradient(at);
    Simd().lstm_grad(In(4, at.row, 4), In(3, at.row), Before(args.in(3), 2, at), In(0, at.row), To(at),
                     Out(2, at.sample), Out(0, at.row, 4), r.units);
  }
  void Skip(const Place& at) const {
    AddCellGradient(at);
    Simd().add_to(In(0, at.row), To(at), r.units);
    Zero(Out(0, at.row, 4), 4);
  }
  void AddCellGradient(const Place& at) const {
    if (r.has_cell_gradients) Simd().add_to(In(6, at.row), Out(2, at.sample), r.units);
  }
};

struct Gru : Cell {
  static constexpr bool kForward = true;
  static constexpr size_t kLengths = 4, kScratch = 3;
  static constexpr std::array<size_t, 0> kCarries = {};

  const float* From(const Place& at) const { return Before(args.out(0), 3, at); }
  float* To(const Place& at) const { return scratch + 3 * r.units * at.sample; }
  void Run(const Place& at) const {
    Simd().gru(In(0, at.row, 3), To(at), args.in(2), From(at), Out(1, at.row, 4), Out(0, at.row), r.units);
  }
  void Skip(const Place& at) const {
    Run(at);
    Copy(From(at), Out(0, at.row));
  }
};

struct GruGrad : Cell {
  static constexpr bool kForward = false;
  static constexpr size_t kLengths = 5, kScratch = 0;
  static constexpr std::array<size_t, 1> kCarries = {2};

  const float* From(const Place& at) const { return Out(1, at.row, 3); }
  float* To(const Place& at) const { return Out(2, at.sample); }
  void Run(const Place& at) const {
    Simd().gru_grad(In(4, at.row, 4), Before(args.in(3), 2, at), In(0, at.row), To(at), Out(0, at.row, 3),
                    Out(1, at.row, 3), r.units);
  }
  void Skip(const Place& at) const {
    Simd().add_to(In(0, at.row), To(at), r.units);
    Zero(Out(0, at.row, 3), 3);
    Zero(Out(1, at.row, 3), 3);
  }
};

struct Rnn : Cell {
  static constexpr bool kForward = true;
  static constexpr size_t kLengths = 3, kScratch = 0;
  static constexpr std::array<size_t, 0> kCarries = {};

  const float* From(const Place& at) const { return Before(args.out(0), 2, at); }
  float* To(const Place& at) const { return Out(0, at.row); }
  void Run(const Place& at) const { Simd().rnn[r.relu](In(0, at.row), To(at), r.units); }
  void Skip(const Place& at) const { Copy(From(at), To(at)); }
};

struct RnnGrad : Cell {
  static constexpr bool kForward = false;
  static constexpr size_t kLengths = 3, kScratch = 0;
  static constexpr std::array<size_t, 1> kCarries = {1};

  const float* From(const Place& at) const { return Out(0, at.row); }
  float* To(const Place& at) const { return Out(1, at.sample); }
  void Run(const Place& at) const {
    Simd().rnn_grad[r.relu](In(2, at.row), In(0, at.row), To(at), Out(0, at.row), r.units);
  }
  void Skip(const Place& at) const {
    Simd().add_to(In(0, at.row), To(at), r.units);
    Zero(Out(0, at.row), 1);
  }
};

// Calls f(place) for the samples of a block at a step.
template <typename F>
void ForSamples(const Recurrence& r, const Place& first, F f) {
  const auto range = [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      f(Place{first.step, first.sample + b, first.row + b, first.before < 0 ? -1 : first.before + b});
    }
  };
  r.blocks > 1 ? range(0, r.samples()) : Parallel(r.batch, r.units * kGateCost, range);
}

// Runs all steps of a block of samples.
template <typename Kind>
void Traverse(const Kind& cell, const int64_t* lengths, RecurrentGemm& product, int64_t block) {
  const Recurrence& r = cell.r;
  const int64_t first = block * r.samples();
  for (size_t carry : Kind::kCarries) cell.Zero(cell.Out(carry, first), r.samples());
  for (int64_t i = 0; i < r.steps; ++i) {
    const Place begin = GetPlace(r, Kind::kForward ? i : r.steps - 1 - i, first);
    if (Kind::kForward) product.Run(block, cell.From(begin), cell.To(begin));
    ForSamples(r, begin, [&](const Place& at) {
      lengths == nullptr || at.step < lengths[at.sample] ? cell.Run(at) : cell.Skip(at);
    });
    if (!Kind::kForward) product.Run(block, cell.From(begin), cell.To(begin));
  }
}

// Input 0 is [S,B,…], input 1 the recurrent weights [G·H,H].
template <typename Kind>
Recurrence MakeRecurrence(const KernelContext& c) {
  const Shape &x = c.in(0).shape, &weights = c.in(1).shape;
  return {.steps = x[0],
          .batch = x[1],
          .units = weights[1],
          .gates = weights[0] / weights[1],
          .reverse = c.attrs().Int("reverse") != 0,
          .has_lengths = c.has(Kind::kLengths),
          .has_cell_gradients = std::is_same_v<Kind, LstmGrad> && c.has(6),
          .relu = c.attrs().String("activation") == "Relu",
          .blocks = CountBlocks(x[1])};
}

template <typename Kind>
RecurrentGemm MakeRecurrentGemm(const Recurrence& r) {
  const int64_t wide = r.gates * r.units, n = r.units;
  const RecurrentGemm::Spec forward = {r.samples(), n, wide, {1, n}, false},
                            back = {r.samples(), wide, n, {n, 1}, true};
  return {Kind::kForward ? forward : back, r.blocks};
}

template <typename Kind>
absl::StatusOr<Kernel> PrepareRecurrence(const KernelContext& c) {
  const auto r = MakeRecurrence<Kind>(c);
  RecurrentGemm product = MakeRecurrentGemm<Kind>(r);
  const size_t sums = product.workspace(), workspace = sums + Kind::kScratch * r.batch * r.units * sizeof(float);
  return Kernel{.run =
                    [r, product, sums](const Args& args) mutable {
                      auto* bytes = static_cast<std::byte*>(args.workspace);
                      product.Load(args.in(1), bytes);
                      const Kind cell{{r, args, reinterpret_cast<float*>(bytes + sums)}};
                      const int64_t* lengths = r.has_lengths ? args.in<int64_t>(Kind::kLengths) : nullptr;
                      Parallel(r.blocks, kGrain, [&](int64_t begin, int64_t end) {
                        for (int64_t block = begin; block < end; ++block) Traverse(cell, lengths, product, block);
                      });
                    },
                .workspace = workspace};
}

}  // namespace

std::span<const KernelRow> RecurrentKernels() {
  constexpr TypeSet kTypes = kFloat | Only(DType::kInt64);  // lengths are int64
  static constexpr KernelRow kRows[] = {
      {"Lstm", PrepareRecurrence<Lstm>, kTypes}, {"LstmGrad", PrepareRecurrence<LstmGrad>, kTypes},
      {"Gru", PrepareRecurrence<Gru>, kTypes},   {"GruGrad", PrepareRecurrence<GruGrad>, kTypes},
      {"Rnn", PrepareRecurrence<Rnn>, kTypes},   {"RnnGrad", PrepareRecurrence<RnnGrad>, kTypes},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
