#include "frontend/data/image/image.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>

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

// Rounds a row of pixels, whose weights add up to 1 up to rounding, so x + 0.5 stays below 256. A separate loop is
// vectorized.
ONNXTRAIN_FOR_AVX2 void RoundRow(const float* in, int n, uint8_t* out) {
  for (int i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(in[i] + 0.5F);
}

// Clips a row that was made with negative weights.
ONNXTRAIN_FOR_AVX2 void ClipRow(int n, float* row) {
  for (int i = 0; i < n; ++i) row[i] = std::min(std::max(row[i], 0.0F), 255.0F);
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

void MixGrey(const float* row, const RowTaps& from, int n, float* out) {
  const float* weights = from.weights;
  for (int i = 0; i < n; ++i, weights += from.taps) {
    const float* in = row + (from.first[i] - from.left);
    float sum = 0;
    for (int k = 0; k < from.taps; ++k) sum += weights[k] * in[k];
    out[i] = sum;
  }
}

double Sinc(double x) { return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x); }

double Lanczos(double x) { return std::fabs(x) < 3 ? Sinc(x) * Sinc(x / 3) : 0; }

double Triangle(double x) { return std::max(0.0, 1 - std::fabs(x)); }

// Convolves with a cubic spline (Keys, "Cubic convolution interpolation for digital image processing", 1981, a = -1/2).
double Cubic(double x) {
  constexpr double kA = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

double Flat(double x) { return x > -0.5 && x <= 0.5 ? 1 : 0; }

double Hamming(double x) { return std::fabs(x) < 1 ? Sinc(x) * (0.54 + 0.46 * std::cos(std::numbers::pi * x)) : 0; }

// A filter as a function of the distance in output pixels, or in input pixels if these are larger.
struct FilterShape {
  const char* name;
  double support;            // distance from which the weight is 0
  double (*weight)(double);  // null: the nearest pixel
  bool overshoots;           // some weights are negative
};

// By Filter.
constexpr FilterShape kFilters[] = {{"nearest", 0, nullptr, false},   {"lanczos", 3, Lanczos, true},
                                    {"bilinear", 1, Triangle, false}, {"bicubic", 2, Cubic, true},
                                    {"box", 0.5, Flat, false},        {"hamming", 1, Hamming, false}};

const FilterShape& GetShape(Filter filter) { return kFilters[static_cast<size_t>(filter)]; }

}  // namespace

const char* FilterName(Filter filter) { return GetShape(filter).name; }

std::optional<Filter> FindFilter(std::string_view name) {
  const auto* found = std::ranges::find(kFilters, name, &FilterShape::name);
  return FindFilter(found - std::begin(kFilters));
}

std::optional<Filter> FindFilter(int64_t number) {
  return number >= 0 && number < std::ssize(kFilters) ? std::optional(static_cast<Filter>(number)) : std::nullopt;
}

void Resampler::SetWeights(const Range& range, Filter filter, Axis* axis) {
  const FilterShape& shape = GetShape(filter);
  if (shape.weight == nullptr) return SetNearest(range, axis);
  const double scale = range.extent / range.out, unit = std::max(scale, 1.0), support = shape.support * unit;
  const int low = std::max(0, static_cast<int>(std::floor(range.begin)));
  const int high = std::min(range.in, static_cast<int>(std::ceil(range.begin + range.extent)));
  axis->taps = std::min(static_cast<int>(std::ceil(2 * support)), high - low);
  axis->first.resize(range.out);
  axis->weights.resize(static_cast<size_t>(range.out) * axis->taps);
  std::vector<double> taps(axis->taps);
  for (int i = 0; i < range.out; ++i) {
    const double center = range.begin + (i + 0.5) * scale;
    const int first = std::clamp(static_cast<int>(std::floor(center - support + 0.5)), low, high - axis->taps);
    for (int k = 0; k < axis->taps; ++k) taps[k] = shape.weight((first + k - center + 0.5) / unit);
    const double sum = std::accumulate(taps.begin(), taps.end(), 0.0);
    float* weights = &axis->weights[static_cast<size_t>(i) * axis->taps];
    for (int k = 0; k < axis->taps; ++k) weights[k] = static_cast<float>(taps[k] / sum);
    axis->first[i] = first;
  }
}

// Adds up positions as Pillow does, since rounding decides where one lies between two pixels.
void Resampler::SetNearest(const Range& range, Axis* axis) {
  SetIdentity(0, range.out, axis);
  const double scale = range.extent / range.out;
  double at = range.begin + 0.5 * scale;
  for (int& first : axis->first) {
    first = std::clamp(static_cast<int>(std::floor(at)), 0, range.in - 1);
    at += scale;
  }
}

void Resampler::SetIdentity(int first, int count, Axis* axis) {
  axis->taps = 1;
  axis->weights.assign(count, 1);
  axis->first.resize(count);
  std::iota(axis->first.begin(), axis->first.end(), first);
}

void Resampler::Mix(const Image& in, const Axis& x, const Axis& y, bool clips, Image* out) {
  const auto width = static_cast<int>(x.first.size()), height = static_cast<int>(y.first.size());
  out->Reset(width, height, in.channels);
  const int left = x.first.front(), right = x.first.back() + x.taps;
  const size_t n = static_cast<size_t>(right - left) * in.channels;
  row_.resize(n + kSpare);
  mixed_.resize(size_t{3} * width + kSpare);
  const RowTaps from_x{x.first.data(), x.weights.data(), x.taps, left};
  for (int r = 0; r < height; ++r) {
    const uint8_t* from = in.row(y.first[r]) + static_cast<size_t>(left) * in.channels;
    MixRows(from, in.stride(), &y.weights[static_cast<size_t>(r) * y.taps], y.taps, n, row_.data());
    in.channels == 3 ? MixColors(row_.data(), from_x, width, mixed_.data())
                     : MixGrey(row_.data(), from_x, width, mixed_.data());
    if (clips) ClipRow(in.channels * width, mixed_.data());
    RoundRow(mixed_.data(), in.channels * width, out->row(r));
  }
}

void Resampler::Resize(const Image& in, const PictureInfo& info, const Box& part, Filter filter, int width, int height,
                       Image* out) {
  const double to_x = double(in.whole_width) / info.width, to_y = double(in.whole_height) / info.height;
  SetWeights({part.x * to_x - in.x, part.width * to_x, in.width, width}, filter, &x_);
  SetWeights({part.y * to_y - in.y, part.height * to_y, in.height, height}, filter, &y_);
  if (!GetShape(filter).overshoots) return Mix(in, x_, y_, false, out);
  // Pillow clips and rounds between the directions, whose order decides the pixels.
  const bool rows_first = width > part.width && height < part.height;
  Axis& later = rows_first ? x_ : y_;
  const int begin = later.first.front();
  SetIdentity(begin, later.first.back() + later.taps - begin, &identity_);
  Mix(in, rows_first ? identity_ : x_, rows_first ? y_ : identity_, true, &between_);
  for (int& first : later.first) first -= begin;
  SetIdentity(0, rows_first ? height : width, &identity_);
  Mix(between_, rows_first ? x_ : identity_, rows_first ? identity_ : y_, true, out);
}

}  // namespace onnxtrain
