// Computes LayerNorm, RMSNorm and their gradients, alone and fused with sums, dropout and casts (ops/ops.h). Kernels
// work row by row, so that a row is loaded into the first-level cache once.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/row_functions.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {

// The functions of LayerNorm or RMSNorm. RMSNorm passes mean = 0 and has no bias gradient.
struct LayerNormSimd {
  // Normalizes one row. y may be x.
  void (*row)(const float* x, const float* scale, const float* bias, int64_t n, double epsilon, float* y, float* mean,
              float* rstd);
  // Computes dx of one row and accumulates into dscale and dbias. dx may be dy or x.
  void (*grad_row)(const float* dy, const float* x, const float* scale, int64_t n, float mean, float rstd, float* dx,
                   double* dscale, double* dbias);
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/layer_norm-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/layer_norm-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(LayerNormTable);
HWY_EXPORT(RmsNormTable);
namespace {

const LayerNormSimd& Simd(bool centered) {
  return centered ? HWY_DYNAMIC_DISPATCH(LayerNormTable)() : HWY_DYNAMIC_DISPATCH(RmsNormTable)();
}

constexpr int64_t kDropoutCost = 16;

// Views x as rows of n elements, each of which is normalized.
struct Rows {
  int64_t rows = 1, n = 1;
};

Rows MakeRows(const Shape& x, int64_t axis) {
  Rows r;
  for (size_t a = 0; a < x.size(); ++a) (static_cast<int64_t>(a) < axis ? r.rows : r.n) *= x[a];
  return r;
}

struct RowBuffer {
  alignas(64) float data[kMaxNormRow];
};

// Maps each possible result to the output of the node, or to −1.
template <size_t kCount>
class ResultIndices {
 public:
  explicit ResultIndices(const std::vector<int64_t>& results) {
    at_.fill(-1);
    for (size_t i = 0; i < results.size(); ++i) at_[results[i]] = static_cast<int>(i);
  }
  template <typename Result>
  bool has(Result result) const {
    return at_[static_cast<size_t>(result)] >= 0;
  }
  // Returns null for absent results.
  template <typename T = float, typename Result>
  T* Of(const Args& args, Result result, int64_t offset = 0) const {
    return has(result) ? args.out<T>(at_[static_cast<size_t>(result)]) + offset : nullptr;
  }

 private:
  std::array<int, kCount> at_;
};

void Narrow(const float* x, uint16_t* y, int64_t n) {
  static const UnarySpan span = FindUnary("Cast/f32-bf16")->span;
  if (y != nullptr) span(x, y, n, nullptr);
}

// Sums rows of consecutive inputs of a node in order; applies a dropout to one of them.
class TermRows {
 public:
  TermRows(const KernelContext& c, size_t first, size_t count, int64_t n, std::optional<DropoutSpan> dropout = {},
           size_t key = 0, int64_t dropped = -1)
      : first_(first), n_(n), dropped_(dropout ? dropped : -1), key_(key), dropout_(dropout) {
    for (size_t i = 0; i < count; ++i) is_low_.push_back(c.in(first + i).dtype == DType::kBFloat16);
  }

  bool empty() const { return is_low_.empty(); }

  // Returns start + Σ terms of row i, at `to` or, for a single row, in place. `start` may be null; `to` may be a summed
  // float32 row.
  const float* Sum(const Args& args, int64_t i, const float* start, float* to, RowBuffer* scratch) const {
    const float* sum = start;
    for (size_t t = 0; t < is_low_.size(); ++t) {
      const bool last = t + 1 == is_low_.size();
      if (sum == nullptr) {
        sum = Term(args, t, i, last ? to : scratch[0].data);
      } else {
        float* target = last ? to : scratch[0].data;
        add_(sum, Term(args, t, i, scratch[1].data), target, n_);
        sum = target;
      }
    }
    return sum;
  }

 private:
  // Returns row i of a term in float32, converted to `to` if needed.
  const float* Term(const Args& args, size_t t, int64_t i, float* to) const {
    const void* from = args.inputs[first_ + t];
    const float* x = static_cast<const float*>(from) + i * n_;
    if (is_low_[t]) {
      widen_(static_cast<const uint16_t*>(from) + i * n_, to, n_, nullptr);
      x = to;
    }
    if (static_cast<int64_t>(t) != dropped_) return x;
    dropout_->Run(args.in<uint32_t>(key_), i * n_, x, n_, to);
    return to;
  }

  size_t first_;
  int64_t n_, dropped_;
  size_t key_;
  std::optional<DropoutSpan> dropout_;
  std::vector<bool> is_low_;
  BinarySpan add_ = FindBinary("Add")->both;
  UnarySpan widen_ = FindUnary("Cast/bf16-f32")->span;
};

struct Norm {
  LayerNormSimd simd;
  Rows r;
  double epsilon;
  size_t scale, bias;
  bool has_bias;
  TermRows terms;
  ResultIndices<kNormResults> results;

  void Row(const Args& args, int64_t i, RowBuffer* scratch) const {
    float* sum = results.Of(args, NormResult::kSum, i * r.n);
    const float* x = terms.Sum(args, i, nullptr, sum != nullptr ? sum : scratch[2].data, scratch);
    if (sum != nullptr && x != sum) std::memcpy(sum, x, r.n * sizeof(float));
    float* wide = results.Of(args, NormResult::kF32, i * r.n);
    float* y = wide != nullptr ? wide : scratch[0].data;
    float mean, rstd;
    simd.row(x, args.in(scale), has_bias ? args.in(bias) : nullptr, r.n, epsilon, y, &mean, &rstd);
    Narrow(y, results.Of<uint16_t>(args, NormResult::kBf16, i * r.n), r.n);
    if (float* to = results.Of(args, NormResult::kMean, i)) *to = mean;
    if (float* to = results.Of(args, NormResult::kRstd, i)) *to = rstd;
  }

  Kernel Make(int64_t cost) && {
    return {.run = [norm = std::move(*this), cost](const Args& args) {
      Parallel(norm.r.rows, cost * norm.r.n, [&](int64_t begin, int64_t end) {
        RowBuffer scratch[3];
        for (int64_t i = begin; i < end; ++i) norm.Row(args, i, scratch);
      });
    }};
  }
};

template <bool kCentered>
absl::StatusOr<Kernel> PrepareNorm(const KernelContext& c) {
  const Rows r = MakeRows(c.in().shape, c.attrs().Int("axis"));
  std::vector<int64_t> results = {static_cast<int64_t>(NormResult::kF32), static_cast<int64_t>(NormResult::kRstd)};
  if (kCentered) results.insert(results.begin() + 1, static_cast<int64_t>(NormResult::kMean));
  return Norm{.simd = Simd(kCentered),
              .r = r,
              .epsilon = c.attrs().Float("epsilon"),
              .scale = 1,
              .bias = 2,
              .has_bias = c.has(2),
              .terms = TermRows(c, 0, 1, r.n),
              .results = ResultIndices<kNormResults>(results)}
      .Make(4);
}

template <bool kCentered>
absl::StatusOr<Kernel> PrepareSumAndNorm(const KernelContext& c) {
  const Rows r = MakeRows(c.in(kNormTerms).shape, c.attrs().Int("axis"));
  const int64_t dropped = c.attrs().Int("dropped"), elements = c.in(kNormTerms).elements();
  const size_t terms = c.node.inputs.size() - kNormTerms;
  return Norm{.simd = Simd(kCentered),
              .r = r,
              .epsilon = c.attrs().Float("epsilon"),
              .scale = kNormScale,
              .bias = kNormBias,
              .has_bias = c.has(kNormBias),
              .terms = TermRows(c, kNormTerms, terms, r.n, DropoutSpan(c.attrs(), elements), kNormKey, dropped),
              .results = ResultIndices<kNormResults>(c.attrs().Ints("results"))}
      .Make(4 + static_cast<int64_t>(terms) + (dropped < 0 ? 0 : kDropoutCost));
}

// The parts of sums over rows depend on the shape, not on the number of threads.
constexpr int64_t kParts = 16, kRowsPerPart = 8;

struct NormGrad {
  // The sums over all rows; that of the dropped gradient is last. RMSNorm lacks the first.
  static constexpr std::array<NormGradResult, 4> kSums = {NormGradResult::kBias, NormGradResult::kScale,
                                                          NormGradResult::kColumns, NormGradResult::kDroppedColumns};

  bool centered;
  LayerNormSimd simd;
  Rows r;
  size_t x, scale, mean, rstd;
  TermRows terms, more;
  std::optional<DropoutSpan> dropout;
  ResultIndices<kNormGradResults> results;
  int64_t first = 0, sums = 2;  // the range of kSums that is computed
  int64_t parts = 1;

  void Row(const Args& args, int64_t i, RowBuffer* scratch, double* accs) const {
    const float* dy = terms.Sum(args, i, nullptr, scratch[2].data, scratch);
    float* sum = results.Of(args, NormGradResult::kSum, i * r.n);
    float* to = sum != nullptr ? sum : scratch[2].data;
    float* dx = more.empty() ? to : scratch[2].data;
    simd.grad_row(dy, args.in(x) + i * r.n, args.in(scale), r.n, centered ? args.in(mean)[i] : 0, args.in(rstd)[i], dx,
                  SumAt(accs, 1), centered ? SumAt(accs, 0) : nullptr);
    const float* dh = more.Sum(args, i, dx, to, scratch);
    Narrow(dh, results.Of<uint16_t>(args, NormGradResult::kBf16, i * r.n), r.n);
    if (results.has(NormGradResult::kColumns)) GetFloatSumReducer().columns(dh, r.n, SumAt(accs, 2));
    if (dropout) Drop(args, i, dh, scratch[1].data, SumAt(accs, 3));
  }

  // Returns element `which` of kSums.
  double* SumAt(double* accs, int64_t which) const { return accs + (which - first) * r.n; }

  void Drop(const Args& args, int64_t i, const float* dh, float* scratch, double* acc) const {
    float* dropped = results.Of(args, NormGradResult::kDropped, i * r.n);
    float* d = dropped != nullptr ? dropped : scratch;
    dropout->Run(args.in<uint32_t>(kNormGradKey), i * r.n, dh, r.n, d);
    Narrow(d, results.Of<uint16_t>(args, NormGradResult::kDroppedBf16, i * r.n), r.n);
    if (results.has(NormGradResult::kDroppedColumns)) GetFloatSumReducer().columns(d, r.n, acc);
  }

  void Finish(const Args& args, double* accs) const {
    const int64_t width = sums * r.n;
    Parallel(width, parts, [&](int64_t begin, int64_t end) {
      for (int64_t part = 1; part < parts; ++part)
        GetFloatSumReducer().merge(accs + begin, accs + part * width + begin, end - begin);
    });
    for (int64_t s = first; s < first + sums; ++s) {
      if (float* to = results.Of(args, kSums[s])) GetFloatSumReducer().finish(SumAt(accs, s), r.n, 1, to);
    }
  }

  Kernel Make(int64_t cost) && {
    first = centered ? 0 : 1;
    sums = (results.has(NormGradResult::kDroppedColumns) ? 4 : results.has(NormGradResult::kColumns) ? 3 : 2) - first;
    parts = std::clamp<int64_t>(r.rows / kRowsPerPart, 1, kParts);
    const size_t workspace = parts * sums * r.n * sizeof(double);
    return {.run = [grad = std::move(*this), cost](const Args& args) { grad.Run(args, cost); }, .workspace = workspace};
  }

  void Run(const Args& args, int64_t cost) const {
    auto* all = static_cast<double*>(args.workspace);
    Parallel(parts, r.rows / parts * r.n * cost, [&](int64_t begin, int64_t end) {
      RowBuffer scratch[3];
      for (int64_t part = begin; part < end; ++part) {
        double* accs = all + part * sums * r.n;
        std::fill_n(accs, sums * r.n, 0.0);
        for (int64_t i = r.rows * part / parts; i < r.rows * (part + 1) / parts; ++i) Row(args, i, scratch, accs);
      }
    });
    Finish(args, all);
  }
};

template <bool kCentered>
absl::StatusOr<Kernel> PrepareNormGrad(const KernelContext& c) {
  const Rows r = MakeRows(c.in(1).shape, c.attrs().Int("axis"));
  std::vector<int64_t> results = {static_cast<int64_t>(NormGradResult::kSum),
                                  static_cast<int64_t>(NormGradResult::kScale)};
  if (kCentered) results.push_back(static_cast<int64_t>(NormGradResult::kBias));
  return NormGrad{.centered = kCentered,
                  .simd = Simd(kCentered),
                  .r = r,
                  .x = 1,
                  .scale = 2,
                  .mean = 3,
                  .rstd = kCentered ? 4 : 3,
                  .terms = TermRows(c, 0, 1, r.n),
                  .more = TermRows(c, 0, 0, r.n),
                  .dropout = {},
                  .results = ResultIndices<kNormGradResults>(results)}
      .Make(6);
}

template <bool kCentered>
absl::StatusOr<Kernel> PrepareSumAndNormGrad(const KernelContext& c) {
  const Rows r = MakeRows(c.in(kNormGradSum).shape, c.attrs().Int("axis"));
  const size_t more = c.attrs().Int("more"), terms = c.node.inputs.size() - kNormGradTerms - more;
  const auto dropout =
      c.has(kNormGradKey) ? std::optional(DropoutSpan(c.attrs(), c.in(kNormGradSum).elements())) : std::nullopt;
  return NormGrad{.centered = kCentered,
                  .simd = Simd(kCentered),
                  .r = r,
                  .x = kNormGradSum,
                  .scale = kNormGradScale,
                  .mean = kNormGradMean,
                  .rstd = kNormGradRstd,
                  .terms = TermRows(c, kNormGradTerms, terms, r.n),
                  .more = TermRows(c, kNormGradTerms + terms, more, r.n),
                  .dropout = dropout,
                  .results = ResultIndices<kNormGradResults>(c.attrs().Ints("results"))}
      .Make(6 + static_cast<int64_t>(terms + more) + (dropout ? kDropoutCost : 0));
}

}  // namespace

std::span<const KernelRow> LayerNormKernels() {
  constexpr TypeSet kMixed = kFloat | Only(DType::kBFloat16) | Only(DType::kUInt32);
  static constexpr KernelRow kRows[] = {
      {"LayerNorm", PrepareNorm<true>},
      {"LayerNormGrad", PrepareNormGrad<true>},
      {"RmsNorm", PrepareNorm<false>},
      {"RmsNormGrad", PrepareNormGrad<false>},
      {"cpu.LayerNorm", PrepareSumAndNorm<true>, kMixed},
      {"cpu.LayerNormGrad", PrepareSumAndNormGrad<true>, kMixed},
      {"cpu.RmsNorm", PrepareSumAndNorm<false>, kMixed},
      {"cpu.RmsNormGrad", PrepareSumAndNormGrad<false>, kMixed},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
