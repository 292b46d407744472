#include "frontend/data/load/loader.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "frontend/data/image/augment.h"
#include "frontend/data/image/image.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

constexpr uint32_t kStream = 3;  // distinct from the streams in augment.cc

// Draws from a gamma distribution (Marsaglia & Tsang, "A simple method for generating gamma variables", 2000).
double DrawGamma(double shape, KeyedRandom* random) {
  if (shape < 1) return DrawGamma(shape + 1, random) * std::pow(1 - random->Uniform(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = random->Normal(), v = std::pow(1 + c * x, 3);
    const double u = 1 - random->Uniform();
    if (v > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

// Draws x from Beta(α, α) and returns max(x, 1 - x).
double DrawShare(double alpha, KeyedRandom* random) {
  const double a = DrawGamma(alpha, random), b = DrawGamma(alpha, random);
  return a + b > 0 ? std::max(a, b) / (a + b) : 1;
}

// How a sample is mixed with another.
struct Mix {
  double share = 1;  // weight of the sample itself
  bool cut = false;  // copy `box` of the other sample; false: weighted mean
  Box box;
};

// Draws a box with the share 1 - `share` of the area around a random point, clipped to the picture.
Mix DrawBox(const MixOptions& o, double share, KeyedRandom* random) {
  const double side = std::sqrt(1 - share);
  const auto height = static_cast<int>(std::lround(o.height * side));
  const auto width = static_cast<int>(std::lround(o.width * side));
  const auto y = static_cast<int>(random->Below(o.height)) - height / 2;
  const auto x = static_cast<int>(random->Below(o.width)) - width / 2;
  const int top = std::max(0, y), left = std::max(0, x);
  const Box box{left, top, std::min(o.width, x + width) - left, std::min(o.height, y + height) - top};
  return {1 - double(box.width) * box.height / (double(o.width) * o.height), true, box};
}

Mix DrawMix(const MixOptions& o, const ReadPass& pass, int64_t sample) {
  KeyedRandom random(pass, sample, kStream);
  const bool cut = o.cutmix > 0 && (o.mixup == 0 || random.Chance(0.5));
  const double share = DrawShare(cut ? o.cutmix : o.mixup, &random);
  return cut ? DrawBox(o, share, &random) : Mix{share};
}

template <typename T>
T FromDouble(double x) {
  if constexpr (std::is_same_v<T, Half>) return {FloatToHalf(static_cast<float>(x))};
  if constexpr (std::is_same_v<T, BFloat16>) return {FloatToBFloat16(static_cast<float>(x))};
  if constexpr (std::is_same_v<T, Bool>) return {x >= 0.5};
  if constexpr (std::is_integral_v<T>) return static_cast<T>(std::lround(x));
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(x);
}

void Blend(DType dtype, double share, std::span<const std::byte> other, std::span<std::byte> own) {
  Visit(dtype, [&]<typename T>(Tag<T>) {
    auto* to = reinterpret_cast<T*>(own.data());
    const auto* from = reinterpret_cast<const T*>(other.data());
    for (size_t i = 0; i < own.size() / sizeof(T); ++i)
      to[i] = FromDouble<T>(share * double(ReadScalar(to[i])) + (1 - share) * double(ReadScalar(from[i])));
  });
}

// Copies a box between samples [channels, height, width] or [height, width, channels].
void PasteBox(const MixOptions& o, const MixedFeed& feed, const Box& box, std::span<const std::byte> other,
              std::span<std::byte> own) {
  const size_t pixels = static_cast<size_t>(o.height) * o.width;
  const size_t pixel = o.channels_last ? own.size() / pixels : DTypeSize(feed.dtype);  // bytes per pixel
  for (size_t plane = 0; plane < own.size(); plane += pixels * pixel) {
    for (int y = box.y; y < box.y + box.height; ++y) {
      const size_t at = plane + (static_cast<size_t>(y) * o.width + box.x) * pixel;
      std::memcpy(own.data() + at, other.data() + at, box.width * pixel);
    }
  }
}

void MixRow(const MixOptions& o, const Mix& mix, const MixedFeed& feed, std::span<const std::byte> other,
            std::span<std::byte> own) {
  if (mix.cut && feed.mixing == Mixing::kPixels) {
    PasteBox(o, feed, mix.box, other, own);
  } else {
    Blend(feed.dtype, mix.share, other, own);
  }
}

}  // namespace

void MixBatch(const MixOptions& options, const ReadPass& pass, std::span<const int64_t> samples,
              std::span<const MixedFeed> feeds) {
  thread_local std::vector<std::byte> first;  // copy of the first row before mixing
  for (size_t a = 0, b = samples.size() - 1; a < b; ++a, --b) {
    const Mix mix_a = DrawMix(options, pass, samples[a]), mix_b = DrawMix(options, pass, samples[b]);
    for (const MixedFeed& feed : feeds) {
      if (feed.mixing == Mixing::kNone) continue;
      const size_t row = feed.rows.size() / samples.size();
      const std::span<std::byte> row_a = feed.rows.subspan(a * row, row), row_b = feed.rows.subspan(b * row, row);
      first.assign(row_a.begin(), row_a.end());
      MixRow(options, mix_a, feed, row_b, row_a);
      MixRow(options, mix_b, feed, first, row_b);
    }
  }
}

}  // namespace onnxtrain
