#include "frontend/data/image/image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace onnxtrain {
namespace {

// Works in place from the front, since the result is shorter.
void ToGrey(Image* image) {
  uint8_t* p = image->pixels.data();
  const size_t n = image->pixels.size() / 3;
  for (size_t i = 0; i < n; ++i) p[i] = Luma(p[3 * i], p[3 * i + 1], p[3 * i + 2]);
  image->pixels.resize(n);
}

// Works in place from the back, since the result is longer.
void ToRgb(Image* image) {
  const size_t n = image->pixels.size();
  image->pixels.resize(3 * n);
  uint8_t* p = image->pixels.data();
  for (size_t i = n; i-- > 0;) p[3 * i] = p[3 * i + 1] = p[3 * i + 2] = p[i];
}

}  // namespace

bool IsGrey(const Image& image) {
  const std::vector<uint8_t>& p = image.pixels;
  size_t i = 0;
  while (image.channels == 3 && i < p.size() && p[i] == p[i + 1] && p[i] == p[i + 2]) i += 3;
  return image.channels == 1 || i == p.size();
}

void SetChannels(int channels, Image* image) {
  if (image->channels == channels) return;
  channels == 1 ? ToGrey(image) : ToRgb(image);
  image->channels = channels;
}

namespace {

constexpr int kSpare = 4;  // floats after a row that the last vector may access

using Vector = float __attribute__((vector_size(16)));

// Weights of a pixel add up to 1 up to rounding, so x + 0.5 stays below 256.
uint8_t Round(float x) { return static_cast<uint8_t>(x + 0.5F); }

// Computes row[j] = Σ_k weights[k] · (row k of `in`)[j] in blocks that stay in registers.
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

// Resampler::Axis of a horizontal pass.
struct RowTaps {
  const int* first;
  const float* weights;
  int taps, left;  // left: index of the row's first pixel in the picture
};

// Rounds a row. A separate loop is vectorized.
ONNXTRAIN_FOR_AVX2 void RoundRow(const float* in, int n, uint8_t* out) {
  for (int i = 0; i < n; ++i) out[i] = Round(in[i]);
}

// Resizes a row horizontally to n pixels of three channels. The fourth lane of a vector belongs to the next pixel,
// which is written later.
ONNXTRAIN_FOR_AVX2 void MixColors(const float* row, const RowTaps& from, int n, float* out) {
  const float* weights = from.weights;
  for (int i = 0; i < n; ++i, out += 3, weights += from.taps) {
    Vector sum = {};
    const float* in = row + 3 * static_cast<std::ptrdiff_t>(from.first[i] - from.left);
    for (int k = 0; k < from.taps; ++k, in += 3) {
      Vector pixel;
      std::memcpy(&pixel, in, sizeof(pixel));
      sum += weights[k] * pixel;
    }
    std::memcpy(out, &sum, sizeof(sum));
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
  axis->taps = std::min(static_cast<int>(std::ceil(2 * support)), high - low);
  axis->first.resize(out);
  axis->weights.resize(static_cast<size_t>(out) * axis->taps);
  for (int i = 0; i < out; ++i) {
    const double center = begin + (i + 0.5) * scale;
    const int first = std::clamp(static_cast<int>(std::floor(center - support + 0.5)), low, high - axis->taps);
    const auto triangle = [&](int k) { return std::max(0.0, 1 - std::fabs(first + k + 0.5 - center) / support); };
    double sum = 0;
    for (int k = 0; k < axis->taps; ++k) sum += triangle(k);
    float* weights = &axis->weights[static_cast<size_t>(i) * axis->taps];
    for (int k = 0; k < axis->taps; ++k) weights[k] = static_cast<float>(triangle(k) / sum);
    axis->first[i] = first;
  }
}

void Resampler::SetNearest(double begin, double extent, int in, int out, Axis* axis) {
  axis->taps = 1;
  axis->first.resize(out);
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
  const int left = x_.first.front(), right = x_.first.back() + x_.taps;
  const size_t n = static_cast<size_t>(right - left) * in.channels;
  row_.resize(n + kSpare);
  mixed_.resize(size_t{3} * width + kSpare);
  const RowTaps from_x{x_.first.data(), x_.weights.data(), x_.taps, left};
  for (int y = 0; y < height; ++y) {
    const uint8_t* from = in.row(y_.first[y]) + static_cast<size_t>(left) * in.channels;
    MixRows(from, in.stride(), &y_.weights[static_cast<size_t>(y) * y_.taps], y_.taps, n, row_.data());
    if (in.channels == 3) {
      MixColors(row_.data(), from_x, width, mixed_.data());
      RoundRow(mixed_.data(), 3 * width, out->row(y));
      continue;
    }
    for (int x = 0; x < width; ++x)
      out->row(y)[x] = MixGrey(&row_[x_.first[x] - left], &x_.weights[static_cast<size_t>(x) * x_.taps], x_.taps);
  }
}

}  // namespace onnxtrain
