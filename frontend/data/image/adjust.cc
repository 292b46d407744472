#include "frontend/data/image/adjust.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "frontend/data/image/color.h"

namespace onnxtrain {
namespace {

using Table = std::array<uint8_t, 256>;

uint8_t Clamped(double x) { return static_cast<uint8_t>(std::clamp(x, 0.0, 255.0) + 0.5); }

uint8_t LumaOf(const Image& image, size_t i) {
  const uint8_t* p = &image.pixels[i * image.channels];
  return image.channels == 1 ? *p : Luma(p[0], p[1], p[2]);
}

void Look(const Table& table, int channel, Image* image) {
  for (size_t i = channel; i < image->pixels.size(); i += image->channels) image->pixels[i] = table[image->pixels[i]];
}

void LookAll(const Table& table, Image* image) {
  for (uint8_t& x : image->pixels) x = table[x];
}

template <typename F>
Table MakeTable(F value) {
  Table table;
  for (int x = 0; x < 256; ++x) table[x] = value(x);
  return table;
}

std::array<int64_t, 256> Histogram(const Image& image, int channel) {
  std::array<int64_t, 256> counts = {};
  for (size_t i = channel; i < image.pixels.size(); i += image.channels) ++counts[image.pixels[i]];
  return counts;
}

double Blend(double degenerate, double value, double factor) { return degenerate + factor * (value - degenerate); }

// 3 × 3 average in which the middle counts five times.
double Smoothed(const Image& image, int x, int y, int c) {
  int sum = 4 * image.row(y)[x * image.channels + c];
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) sum += image.row(y + dy)[(x + dx) * image.channels + c];
  }
  return sum / 13.0;
}

// The value at a place between pixels; black outside.
double Between(const Image& image, double x, double y, int c) {
  const double left = std::floor(x), top = std::floor(y);
  double sum = 0;
  for (int dy = 0; dy <= 1; ++dy) {
    for (int dx = 0; dx <= 1; ++dx) {
      const double px = left + dx, py = top + dy;
      if (px < 0 || py < 0 || px >= image.width || py >= image.height) continue;
      const double weight = (1 - std::fabs(x - px)) * (1 - std::fabs(y - py));
      sum += weight * image.row(static_cast<int>(py))[static_cast<int>(px) * image.channels + c];
    }
  }
  return sum;
}

}  // namespace

void AdjustBrightness(double factor, Image* image) {
  LookAll(MakeTable([&](int x) { return Clamped(x * factor); }), image);
}

void AdjustContrast(double factor, Image* image) {
  const size_t n = image->pixels.size() / image->channels;
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += LumaOf(*image, i);
  const double mean = std::floor(sum / static_cast<double>(n) + 0.5);
  LookAll(MakeTable([&](int x) { return Clamped(Blend(mean, x, factor)); }), image);
}

void AdjustSaturation(double factor, Image* image) {
  if (image->channels == 1) return;
  for (size_t i = 0; i < image->pixels.size(); i += 3) {
    const double grey = LumaOf(*image, i / 3);
    for (int c = 0; c < 3; ++c) image->pixels[i + c] = Clamped(Blend(grey, image->pixels[i + c], factor));
  }
}

void AdjustSharpness(double factor, Image* image, Image* spare) {
  *spare = *image;
  for (int y = 1; y + 1 < image->height; ++y) {
    for (int x = 1; x + 1 < image->width; ++x) {
      for (int c = 0; c < image->channels; ++c) {
        uint8_t& value = image->row(y)[x * image->channels + c];
        value = Clamped(Blend(Smoothed(*spare, x, y, c), value, factor));
      }
    }
  }
}

void Solarize(int threshold, Image* image) {
  LookAll(MakeTable([&](int x) { return static_cast<uint8_t>(x < threshold ? x : 255 - x); }), image);
}

void Posterize(int bits, Image* image) {
  LookAll(MakeTable([&](int x) { return static_cast<uint8_t>(x & (0xFF << (8 - bits))); }), image);
}

void AutoContrast(Image* image) {
  for (int c = 0; c < image->channels; ++c) {
    const auto counts = Histogram(*image, c);
    int low = 0, high = 255;
    while (low < 255 && counts[low] == 0) ++low;
    while (high > 0 && counts[high] == 0) --high;
    if (high > low) Look(MakeTable([&](int x) { return Clamped((x - low) * 255.0 / (high - low)); }), c, image);
  }
}

void Equalize(Image* image) {
  for (int c = 0; c < image->channels; ++c) {
    const auto counts = Histogram(*image, c);
    const auto last = std::ranges::find_if(counts.rbegin(), counts.rend(), [](int64_t n) { return n > 0; });
    const int64_t all = static_cast<int64_t>(image->pixels.size()) / image->channels, step = (all - *last) / 255;
    if (step == 0) continue;
    int64_t below = step / 2;
    Look(MakeTable([&](int x) {
           const int64_t value = below / step;
           below += counts[x];
           return static_cast<uint8_t>(std::min<int64_t>(value, 255));
         }),
         c, image);
  }
}

void Erase(const Box& part, Image* image) {
  for (int y = part.y; y < part.y + part.height; ++y)
    std::memset(image->row(y) + static_cast<size_t>(part.x) * image->channels, 0,
                static_cast<size_t>(part.width) * image->channels);
}

void Warp(const Affine& m, Filter filter, Image* image, Image* spare) {
  spare->Reset(image->width, image->height, image->channels);
  const double cx = (image->width - 1) / 2.0, cy = (image->height - 1) / 2.0;
  for (int y = 0; y < image->height; ++y) {
    for (int x = 0; x < image->width; ++x) {
      double from_x = m[0] * (x - cx) + m[1] * (y - cy) + m[2] + cx,
             from_y = m[3] * (x - cx) + m[4] * (y - cy) + m[5] + cy;
      if (filter == Filter::kNearest) from_x = std::floor(from_x + 0.5), from_y = std::floor(from_y + 0.5);
      for (int c = 0; c < image->channels; ++c)
        spare->row(y)[x * image->channels + c] = Clamped(Between(*image, from_x, from_y, c));
    }
  }
  std::swap(*image, *spare);
}

}  // namespace onnxtrain
