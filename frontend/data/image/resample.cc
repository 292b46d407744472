#include "frontend/data/image/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

// Compiles a function also for AVX2, without fused products: the results are equal.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ONNXTRAIN_FOR_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define ONNXTRAIN_FOR_AVX2
#endif

namespace onnxtrain {
namespace {

constexpr int kSpare = 4;  // floats behind a row that the last vector reads

using Vector = float __attribute__((vector_size(16)));
using Integers = int __attribute__((vector_size(16)));

// Weights of a pixel add up to 1 but for rounding, so that 255.5 is the most: it stays below 256.
uint8_t Round(float x) { return static_cast<uint8_t>(x + 0.5F); }

// row[j] = Σ_k weights[k] · (row k of `in`)[j]. Blocks stay in registers.
ONNXTRAIN_FOR_AVX2 void MixRows(const uint8_t* in, size_t stride, const float* weights, int count, size_t n,
                                float* row) {
  constexpr size_t kBlock = 32;
  size_t j = 0;
  for (; j + kBlock <= n; j += kBlock) {
    float sum[kBlock] = {};
    for (int k = 0; k < count; ++k) {
      const uint8_t* source = in + k * stride + j;
      const float weight = weights[k];
      for (size_t t = 0; t < kBlock; ++t) sum[t] += weight * static_cast<float>(source[t]);
    }
    std::memcpy(row + j, sum, sizeof(sum));
  }
  for (; j < n; ++j) {
    float sum = 0;
    for (int k = 0; k < count; ++k) sum += weights[k] * static_cast<float>(in[k * stride + j]);
    row[j] = sum;
  }
}

// Where the output pixels of a row come from: Resampler::Axis.
struct RowTaps {
  const int *first, *count;
  const float* weights;
  int taps, left;  // the first pixel of the row is pixel `left` of the picture
};

// A row of n pixels of three channels. The fourth lane of a vector is of the next pixel.
ONNXTRAIN_FOR_AVX2 void MixColors(const float* row, const RowTaps& from, int n, uint8_t* out) {
  for (int i = 0; i < n; ++i, out += 3) {
    Vector sum = {0.5F, 0.5F, 0.5F, 0.5F};
    const float* in = row + 3 * static_cast<std::ptrdiff_t>(from.first[i] - from.left);
    const float* weights = from.weights + static_cast<std::ptrdiff_t>(i) * from.taps;
    for (int k = 0; k < from.count[i]; ++k, in += 3) {
      Vector pixel;
      std::memcpy(&pixel, in, sizeof(pixel));
      sum += weights[k] * pixel;
    }
    const auto whole = __builtin_convertvector(sum, Integers);
    for (int c = 0; c < 3; ++c) out[c] = static_cast<uint8_t>(whole[c]);
  }
}

uint8_t MixGrey(const float* in, const float* weights, int count) {
  float sum = 0;
  for (int k = 0; k < count; ++k) sum += weights[k] * in[k];
  return Round(sum);
}

}  // namespace

void Resampler::SetTriangles(double begin, double extent, int in, int out, Axis* axis) {
  const double scale = extent / out, support = std::max(scale, 1.0);
  const int low = std::max(0, static_cast<int>(std::floor(begin)));
  const int high = std::min(in, static_cast<int>(std::ceil(begin + extent)));
  axis->taps = 2 * static_cast<int>(std::ceil(support)) + 1;
  axis->first.resize(out);
  axis->count.resize(out);
  axis->weights.resize(static_cast<size_t>(out) * axis->taps);
  for (int i = 0; i < out; ++i) {
    const double center = begin + (i + 0.5) * scale;
    const int first = std::max(low, static_cast<int>(std::floor(center - support + 0.5)));
    const int end = std::min(high, static_cast<int>(std::floor(center + support + 0.5)));
    float* weights = &axis->weights[static_cast<size_t>(i) * axis->taps];
    double sum = 0;
    for (int k = first; k < end; ++k) sum += std::max(0.0, 1 - std::fabs(k + 0.5 - center) / support);
    for (int k = first; k < end; ++k)
      weights[k - first] = static_cast<float>(std::max(0.0, 1 - std::fabs(k + 0.5 - center) / support) / sum);
    axis->first[i] = first;
    axis->count[i] = end - first;
  }
}

void Resampler::SetNearest(double begin, double extent, int in, int out, Axis* axis) {
  axis->taps = 1;
  axis->first.resize(out);
  axis->count.assign(out, 1);
  axis->weights.assign(out, 1);
  for (int i = 0; i < out; ++i)
    axis->first[i] = std::clamp(static_cast<int>(std::floor(begin + (i + 0.5) * extent / out)), 0, in - 1);
}

void Resampler::Resize(const Image& in, const PictureInfo& info, const Box& part, Filter filter, int width, int height,
                       Image* out) {
  const double to_x = double(in.whole_width) / info.width, to_y = double(in.whole_height) / info.height;
  const auto set = filter == Filter::kNearest ? SetNearest : SetTriangles;
  set(part.x * to_x - in.x, part.width * to_x, in.width, width, &x_);
  set(part.y * to_y - in.y, part.height * to_y, in.height, height, &y_);
  out->Reset(width, height, in.channels);
  const int left = x_.first.front(), right = x_.first.back() + x_.count.back();
  const size_t n = static_cast<size_t>(right - left) * in.channels;
  row_.resize(n + kSpare);
  const RowTaps from_x{x_.first.data(), x_.count.data(), x_.weights.data(), x_.taps, left};
  for (int y = 0; y < height; ++y) {
    const uint8_t* from = in.row(y_.first[y]) + static_cast<size_t>(left) * in.channels;
    MixRows(from, in.stride(), &y_.weights[static_cast<size_t>(y) * y_.taps], y_.count[y], n, row_.data());
    if (in.channels == 3) {
      MixColors(row_.data(), from_x, width, out->row(y));
      continue;
    }
    for (int x = 0; x < width; ++x)
      out->row(y)[x] = MixGrey(&row_[x_.first[x] - left], &x_.weights[static_cast<size_t>(x) * x_.taps], x_.count[x]);
  }
}

}  // namespace onnxtrain
