// Computes batch normalization of row-major [N,C,…] and its gradient. A channel is one plane of every sample.
#include "backends/cpu/kernels/batch_norm.h"

#include <cmath>

#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {

struct Moments {
  double sum, squares;
};

struct BatchNormSimd {
  double (*sum)(const float* x, int64_t n);
  Moments (*moments)(const float* x, int64_t n);
  double (*centered_dot)(const float* dy, const float* x, int64_t n, float mean);
  // Computes y = (x − mean)·scale + bias.
  void (*affine)(const float* x, int64_t n, float mean, float scale, float bias, float* y);
  // Computes dx = (dy − a − (x − mean)·b)·k.
  void (*batch_grad)(const float* dy, const float* x, int64_t n, float mean, float a, float b, float k, float* dx);
};

}  // namespace onnxtrain::cpu

#define HWY_TARGET_INCLUDE "backends/cpu/kernels/batch_norm-inl.h"
#include "hwy/foreach_target.h"

#include "backends/cpu/kernels/batch_norm-inl.h"

namespace onnxtrain::cpu {

HWY_EXPORT(BatchNormTable);
namespace {

const BatchNormSimd& Simd() { return HWY_DYNAMIC_DISPATCH(BatchNormTable)(); }

// Views x [N,C,…] as N planes of `inner` elements for each of C channels.
struct Planes {
  int64_t samples, channels, inner;

  int64_t count() const { return samples * inner; }  // elements per channel
  int64_t At(int64_t sample, int64_t channel) const { return (sample * channels + channel) * inner; }
};

Planes MakePlanes(const Shape& x) {
  Planes p{x[0], x[1], 1};
  for (size_t a = 2; a < x.size(); ++a) p.inner *= x[a];
  return p;
}

BatchStatistics ChannelStatistics(const Planes& p, const float* x, int64_t channel, double epsilon) {
  double sum = 0, squares = 0;
  for (int64_t s = 0; s < p.samples; ++s) {
    const Moments m = Simd().moments(x + p.At(s, channel), p.inner);
    sum += m.sum;
    squares += m.squares;
  }
  return ComputeBatchStatistics(sum, squares, p.count(), epsilon);
}

// Computes y = (x − mean)·scale·rstd + bias for channels [begin, end).
void Normalize(const Planes& p, const float* x, const float* mean, const float* rstd, const float* scale,
               const float* bias, int64_t begin, int64_t end, float* y) {
  for (int64_t s = 0; s < p.samples; ++s) {
    for (int64_t c = begin; c < end; ++c) {
      Simd().affine(x + p.At(s, c), p.inner, mean[c], rstd[c] * scale[c], bias[c], y + p.At(s, c));
    }
  }
}

absl::StatusOr<Kernel> PrepareBatchNorm(const KernelContext& c) {
  const Planes p = MakePlanes(c.in().shape);
  const double epsilon = c.attrs().Float("epsilon");
  return Kernel{.run = [=](const Args& args) {
    float *mean = args.out(1), *rstd = args.out(2);
    Parallel(p.channels, 3 * p.count(), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const BatchStatistics stats = ChannelStatistics(p, args.in(), c, epsilon);
        mean[c] = stats.mean;
        rstd[c] = stats.rstd;
        Normalize(p, args.in(), mean, rstd, args.in(1), args.in(2), c, c + 1, args.out());
      }
    });
  }};
}

absl::StatusOr<Kernel> PrepareBatchNormInference(const KernelContext& c) {
  const Planes p = MakePlanes(c.in().shape);
  const auto epsilon = static_cast<float>(c.attrs().Float("epsilon"));
  const size_t workspace = p.channels * sizeof(float);
  return Kernel{.run =
                    [=](const Args& args) {
                      auto* rstd = static_cast<float*>(args.workspace);
                      for (int64_t c = 0; c < p.channels; ++c) rstd[c] = 1.0f / std::sqrt(args.in(4)[c] + epsilon);
                      Parallel(p.channels, p.count(), [&](int64_t begin, int64_t end) {
                        Normalize(p, args.in(), args.in(3), rstd, args.in(1), args.in(2), begin, end, args.out());
                      });
                    },
                .workspace = workspace};
}

struct GradArgs {
  const float *dy, *x, *scale, *mean, *rstd;
  float *dx, *dscale, *dbias;
};

void ChannelGrad(const Planes& p, const GradArgs& a, int64_t c) {
  double sum = 0, dot = 0;
  for (int64_t s = 0; s < p.samples; ++s) {
    sum += Simd().sum(a.dy + p.At(s, c), p.inner);
    dot += Simd().centered_dot(a.dy + p.At(s, c), a.x + p.At(s, c), p.inner, a.mean[c]);
  }
  const BatchGradient g = ComputeBatchGradient(sum, dot, p.count(), a.rstd[c]);
  a.dbias[c] = g.dbias;
  a.dscale[c] = g.dscale;
  for (int64_t s = 0; s < p.samples; ++s) {
    Simd().batch_grad(a.dy + p.At(s, c), a.x + p.At(s, c), p.inner, a.mean[c], g.mean_dy, g.slope,
                      a.scale[c] * a.rstd[c], a.dx + p.At(s, c));
  }
}

absl::StatusOr<Kernel> PrepareBatchNormGrad(const KernelContext& c) {
  const Planes p = MakePlanes(c.in(1).shape);
  return Kernel{.run = [=](const Args& args) {
    const GradArgs a{args.in(0), args.in(1), args.in(2), args.in(3), args.in(4), args.out(0), args.out(1), args.out(2)};
    Parallel(p.channels, 4 * p.count(), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) ChannelGrad(p, a, c);
    });
  }};
}

}  // namespace

std::span<const KernelRow> BatchNormKernels() {
  static constexpr KernelRow kRows[] = {
      {"BatchNorm", PrepareBatchNorm},
      {"BatchNormGrad", PrepareBatchNormGrad},
      {"BatchNormInference", PrepareBatchNormInference},
  };
  return kRows;
}

}  // namespace onnxtrain::cpu
