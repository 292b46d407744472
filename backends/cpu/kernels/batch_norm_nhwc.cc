// Computes batch normalization of channels-last tensors, [R,C] with contiguous channels. Sums are computed in parts,
// whose number depends on the shape, not on the number of threads.
#include <algorithm>
#include <cmath>

#include "backends/cpu/kernels/batch_norm.h"
#include "backends/cpu/kernels/typed.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {

// The coefficients of y = (x − mean)·scale + bias per channel, repeated over a period.
struct Normalized {
  const float *mean, *scale, *bias;
};

// x is n elements (float or BFloat16) in contiguous rows of `period`; the last may be shorter. Arrays have a function
// without and one with a Relu after the normalization.
template <typename T>
struct BatchNormNhwcSimd {
  void (*moments)(const T* x, int64_t n, int64_t period, double* sums, double* squares);
  // Normalizes x; the second pair adds the residual before the Relu.
  void (*affine[2][2])(const T* x, const T* residual, int64_t n, int64_t period, const Normalized& to, T* y);
  // Computes Σdy and Σdy·(x − mean).
  void (*dots[2])(const T* dy, const T* x, int64_t n, int64_t period, const Normalized& to, double* sums, double* dots);
  // Computes dx = (dy − a − (x − mean)·b)·scale.
  void (*gradient[2])(const T* dy, const T* x, int64_t n, int64_t period, const Normalized& to, const float* a,
                      const float* b, T* dx);
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/batch_norm_nhwc-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/batch_norm_nhwc-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(FloatBatchNormNhwcTable);
HWY_EXPORT(BFloat16BatchNormNhwcTable);
namespace {

template <typename T>
const BatchNormNhwcSimd<T>& Simd();
template <>
const BatchNormNhwcSimd<float>& Simd() {
  return HWY_DYNAMIC_DISPATCH(FloatBatchNormNhwcTable)();
}
template <>
const BatchNormNhwcSimd<BFloat16>& Simd() {
  return HWY_DYNAMIC_DISPATCH(BFloat16BatchNormNhwcTable)();
}

constexpr int64_t kMinLoopLength = 64;  // least elements of a loop: narrower rows are processed several at a time
constexpr int64_t kPart = 1 << 15;      // least elements of a part
constexpr int64_t kMaxParts = 32;

struct Rows {
  int64_t rows = 1, channels = 1;
  int64_t period = 1;  // a multiple of channels
  int64_t parts = 1;

  int64_t size() const { return rows * channels; }
  int64_t Begin(int64_t part) const { return (size() + period - 1) / period * part / parts * period; }
  int64_t Length(int64_t part) const { return std::min(Begin(part + 1), size()) - Begin(part); }
};

// x is [N,C,…].
Rows MakeRows(const Shape& x) {
  Rows r{.rows = x[0], .channels = x[1]};
  for (size_t a = 2; a < x.size(); ++a) r.rows *= x[a];
  if (r.channels == 0) return r;
  r.period = r.channels * std::max<int64_t>(1, kMinLoopLength / r.channels);
  r.parts = std::clamp<int64_t>(r.size() / kPart, 1, kMaxParts);
  return r;
}

// Calls f(part) for all parts; `cost` is the work per element.
template <typename F>
void ForParts(const Rows& r, int64_t cost, F f) {
  Parallel(r.parts, cost * r.size() / r.parts, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) f(part);
  });
}

// Accumulates two sums per channel and part.
class Sums {
 public:
  Sums(const Rows& r, void* workspace) : r_(r), sums_(static_cast<double*>(workspace)) {}
  static size_t Bytes(const Rows& r) { return 2 * r.parts * r.period * sizeof(double); }

  double* Start(int64_t part, int which) {
    double* sums = At(part, which);
    std::fill_n(sums, r_.period, 0.0);
    return sums;
  }
  double Total(int which, int64_t channel) const {
    double total = 0;
    for (int64_t part = 0; part < r_.parts; ++part) {
      for (int64_t i = channel; i < r_.period; i += r_.channels) total += At(part, which)[i];
    }
    return total;
  }

 private:
  double* At(int64_t part, int which) const { return sums_ + (2 * part + which) * r_.period; }

  const Rows& r_;
  double* sums_;
};

// Holds the coefficients of every channel for the last pass, repeated over the period.
class Coefficients {
 public:
  static constexpr int kCount = 5;
  Coefficients(const Rows& r, void* memory) : r_(r), data_(static_cast<float*>(memory)) {}
  static size_t Bytes(const Rows& r) { return kCount * r.period * sizeof(float); }

  float* operator[](int which) { return data_ + which * r_.period; }
  void Repeat() {
    for (int which = 0; which < kCount; ++which) {
      float* row = (*this)[which];
      for (int64_t i = r_.channels; i < r_.period; ++i) row[i] = row[i - r_.channels];
    }
  }

 private:
  const Rows& r_;
  float* data_;
};

Normalized MakeNormalized(Coefficients& k) { return {k[0], k[1], k[2]}; }

bool HasRelu(const KernelContext& c) { return c.attrs().String("activation") == "Relu"; }

size_t GetWorkspaceBytes(const Rows& r) { return Sums::Bytes(r) + Coefficients::Bytes(r); }

void* CoefficientWorkspace(const Rows& r, void* workspace) { return static_cast<char*>(workspace) + Sums::Bytes(r); }

// Normalizes x and adds the residual. `residual` may be null; y may be x or the residual.
template <typename T>
void Apply(const Rows& r, const T* x, const T* residual, Coefficients& k, bool relu, T* y) {
  k.Repeat();
  const bool adds = residual != nullptr;
  ForParts(r, 2, [&](int64_t part) {
    const int64_t at = r.Begin(part);
    Simd<T>().affine[adds][relu](x + at, adds ? residual + at : nullptr, r.Length(part), r.period, MakeNormalized(k),
                                 y + at);
  });
}

template <typename T>
Kernel BatchNorm(const KernelContext& c) {
  const Rows r = MakeRows(c.in().shape);
  const double epsilon = c.attrs().Float("epsilon");
  const bool relu = HasRelu(c), adds = c.has(3);
  return {.run =
              [=](const Args& args) {
                Sums sums(r, args.workspace);
                ForParts(r, 2, [&](int64_t part) {
                  Simd<T>().moments(args.in<T>() + r.Begin(part), r.Length(part), r.period, sums.Start(part, 0),
                                    sums.Start(part, 1));
                });
                Coefficients k(r, CoefficientWorkspace(r, args.workspace));
                for (int64_t i = 0; i < r.channels; ++i) {
                  const BatchStatistics stats =
                      ComputeBatchStatistics(sums.Total(0, i), sums.Total(1, i), r.rows, epsilon);
                  k[0][i] = args.out(1)[i] = stats.mean;
                  args.out(2)[i] = stats.rstd;
                  k[1][i] = args.out(2)[i] * args.in(1)[i];
                  k[2][i] = args.in(2)[i];
                }
                Apply(r, args.in<T>(), adds ? args.in<T>(3) : nullptr, k, relu, args.out<T>());
              },
          .workspace = GetWorkspaceBytes(r)};
}

// Recomputes the result of BatchNorm from its statistics, bitwise equal.
template <typename T>
Kernel BatchNormRecompute(const KernelContext& c) {
  const Rows r = MakeRows(c.in().shape);
  const bool relu = HasRelu(c), adds = c.has(5);
  const int mean = adds ? 4 : 3;
  return {.run =
              [=](const Args& args) {
                Coefficients k(r, args.workspace);
                for (int64_t i = 0; i < r.channels; ++i) {
                  k[0][i] = args.in(mean)[i];
                  k[1][i] = args.in(mean + 1)[i] * args.in(1)[i];
                  k[2][i] = args.in(2)[i];
                }
                Apply(r, args.in<T>(), adds ? args.in<T>(3) : nullptr, k, relu, args.out<T>());
              },
          .workspace = Coefficients::Bytes(r)};
}

template <typename T>
Kernel BatchNormInference(const KernelContext& c) {
  const Rows r = MakeRows(c.in().shape);
  const auto epsilon = static_cast<float>(c.attrs().Float("epsilon"));
  return {.run =
              [=](const Args& args) {
                Coefficients k(r, args.workspace);
                for (int64_t i = 0; i < r.channels; ++i) {
                  k[0][i] = args.in(3)[i];
                  k[1][i] = args.in(1)[i] / std::sqrt(args.in(4)[i] + epsilon);
                  k[2][i] = args.in(2)[i];
                }
                Apply<T>(r, args.in<T>(), nullptr, k, false, args.out<T>());
              },
          .workspace = Coefficients::Bytes(r)};
}

template <typename T>
Kernel BatchNormGrad(const KernelContext& c) {
  const Rows r = MakeRows(c.in(1).shape);
  const bool relu = HasRelu(c);
  return {.run =
              [=](const Args& args) {
                const T *dy = args.in<T>(0), *x = args.in<T>(1);
                const float *scale = args.in(2), *mean = args.in(3), *rstd = args.in(4);
                Coefficients k(r, CoefficientWorkspace(r, args.workspace));
                for (int64_t i = 0; i < r.channels; ++i) {
                  k[0][i] = mean[i];
                  k[1][i] = rstd[i] * scale[i];
                  k[2][i] = relu ? args.in(5)[i] : 0;
                }
                k.Repeat();
                Sums sums(r, args.workspace);
                ForParts(r, 3, [&](int64_t part) {
                  const int64_t at = r.Begin(part);
                  Simd<T>().dots[relu](dy + at, x + at, r.Length(part), r.period, MakeNormalized(k),
                                       sums.Start(part, 0), sums.Start(part, 1));
                });
                for (int64_t i = 0; i < r.channels; ++i) {
                  const BatchGradient g = ComputeBatchGradient(sums.Total(0, i), sums.Total(1, i), r.rows, rstd[i]);
                  args.out(1)[i] = g.dscale;
                  args.out(2)[i] = g.dbias;
                  k[3][i] = g.mean_dy;
                  k[4][i] = g.slope;
                }
                k.Repeat();
                ForParts(r, 3, [&](int64_t part) {
                  const int64_t at = r.Begin(part);
                  Simd<T>().gradient[relu](dy + at, x + at, r.Length(part), r.period, MakeNormalized(k), k[3], k[4],
                                           args.out<T>() + at);
                });
              },
          .workspace = GetWorkspaceBytes(r)};
}

// Prepares the kernel for the element type of input 0.
template <Kernel (*kOfFloats)(const KernelContext&), Kernel (*kOfHalves)(const KernelContext&)>
absl::StatusOr<Kernel> PrepareTyped(const KernelContext& c) {
  return c.in().dtype == DType::kBFloat16 ? kOfHalves(c) : kOfFloats(c);
}

// Returns true if BatchNormRecompute has a residual.
bool HasResidual(const KernelContext& c) { return c.has(5); }

}  // namespace

std::span<const KernelRow> BatchNormNhwcKernels() {
  constexpr auto kForward = PrepareTyped<BatchNorm<float>, BatchNorm<BFloat16>>,
                 kBackward = PrepareTyped<BatchNormGrad<float>, BatchNormGrad<BFloat16>>,
                 kInference = PrepareTyped<BatchNormInference<float>, BatchNormInference<BFloat16>>,
                 kRecompute = PrepareTyped<BatchNormRecompute<float>, BatchNormRecompute<BFloat16>>;
  constexpr Layout kLast = Layout::kChannelsLast;
  constexpr uint32_t kX = 1, kDyAndX = 3, kXAndResidual = 1 | 8;
  static constexpr KernelRow kRows[] = {
      {"BatchNorm", kForward, kFloat, nullptr, kLast, kX},
      {"BatchNormGrad", kBackward, kFloat, nullptr, kLast, kDyAndX},
      {"BatchNormInference", kInference, kFloat, nullptr, kLast, kX},
      {"cpu.BatchNorm", kForward, kFloat, nullptr, kLast, kXAndResidual},
      {"cpu.BatchNormGrad", kBackward, kFloat, nullptr, kLast, kDyAndX},
      {"cpu.BatchNormRecompute", kRecompute, kFloat, HasResidual, kLast, kXAndResidual},
      {"cpu.BatchNormRecompute", kRecompute, kFloat, nullptr, kLast, kX}};
  return kRows;
}

}  // namespace onnxtrain::cpu
