#include "frontend/data/image/augment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "frontend/data/image/image.h"

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

void ApplyTable(const Table& table, Image* image) {
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

// Returns the 3 × 3 average in which the center has weight 5.
double Smoothed(const Image& image, int x, int y, int c) {
  int sum = 4 * image.row(y)[x * image.channels + c];
  for (int dy = -1; dy <= 1; ++dy) {
    for (int dx = -1; dx <= 1; ++dx) sum += image.row(y + dy)[(x + dx) * image.channels + c];
  }
  return sum / 13.0;
}

// Interpolates bilinearly; black outside of the picture.
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
  ApplyTable(MakeTable([&](int x) { return Clamped(x * factor); }), image);
}

void AdjustContrast(double factor, Image* image) {
  const size_t n = image->pixels.size() / image->channels;
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += LumaOf(*image, i);
  const double mean = std::floor(sum / static_cast<double>(n) + 0.5);
  ApplyTable(MakeTable([&](int x) { return Clamped(Blend(mean, x, factor)); }), image);
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
  ApplyTable(MakeTable([&](int x) { return static_cast<uint8_t>(x < threshold ? x : 255 - x); }), image);
}

void Posterize(int bits, Image* image) {
  ApplyTable(MakeTable([&](int x) { return static_cast<uint8_t>(x & (0xFF << (8 - bits))); }), image);
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

namespace {

enum Stream : uint8_t { kGeometry = 1, kColors = 2 };

constexpr int kTries = 10;
constexpr double kMaxMagnitude = 30;

// Draws a box with a share of the area and an aspect ratio within the limits; false if none fits after kTries.
bool DrawShare(int width, int height, double low, double high, double ratio_low, double ratio_high, KeyedRandom* random,
               Box* box) {
  for (int i = 0; i < kTries; ++i) {
    const double area = double(width) * height * random->Uniform(low, high);
    const double ratio = std::exp(random->Uniform(std::log(ratio_low), std::log(ratio_high)));
    const auto w = static_cast<int>(std::lround(std::sqrt(area * ratio)));
    const auto h = static_cast<int>(std::lround(std::sqrt(area / ratio)));
    const int64_t x = random->Below(std::max(1, width - w + 1)), y = random->Below(std::max(1, height - h + 1));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    *box = {static_cast<int>(x), static_cast<int>(y), w, h};
    return true;
  }
  return false;
}

Affine Rotation(double degrees) {
  const double angle = degrees * std::numbers::pi / 180;
  return {std::cos(angle), -std::sin(angle), 0, std::sin(angle), std::cos(angle), 0};
}

// An operation of RandAugment (Cubuk et al., 2019). Strength is in [0, 1]; `sign`, random, is ignored by operations
// without a direction.
struct Operation {
  bool geometric;
  void (*apply)(double strength, double sign, Filter filter, Image* image, Image* spare);
};
constexpr double kShear = 0.3, kShift = 150.0 / 331, kDegrees = 30, kContrast = 0.9;
constexpr Operation kOperations[] = {
    {false, [](double, double, Filter, Image*, Image*) {}},
    {true,
     [](double s, double g, Filter f, Image* i, Image* t) {
       Warp({1, g * s * kShear, 0, 0, 1, 0}, f, i, t);
     }},
    {true,
     [](double s, double g, Filter f, Image* i, Image* t) {
       Warp({1, 0, 0, g * s * kShear, 1, 0}, f, i, t);
     }},
    {true,
     [](double s, double g, Filter f, Image* i, Image* t) {
       Warp({1, 0, std::trunc(g * s * kShift * i->width), 0, 1, 0}, f, i, t);
     }},
    {true,
     [](double s, double g, Filter f, Image* i, Image* t) {
       Warp({1, 0, 0, 0, 1, std::trunc(g * s * kShift * i->height)}, f, i, t);
     }},
    {true, [](double s, double g, Filter f, Image* i, Image* t) { Warp(Rotation(g * s * kDegrees), f, i, t); }},
    {false, [](double s, double g, Filter, Image* i, Image*) { AdjustBrightness(1 + g * s * kContrast, i); }},
    {false, [](double s, double g, Filter, Image* i, Image*) { AdjustSaturation(1 + g * s * kContrast, i); }},
    {false, [](double s, double g, Filter, Image* i, Image*) { AdjustContrast(1 + g * s * kContrast, i); }},
    {false, [](double s, double g, Filter, Image* i, Image* t) { AdjustSharpness(1 + g * s * kContrast, i, t); }},
    {false, [](double s, double, Filter, Image* i, Image*) { Posterize(8 - static_cast<int>(std::lround(s * 4)), i); }},
    {false, [](double s, double, Filter, Image* i, Image*) { Solarize(static_cast<int>(255 * (1 - s)), i); }},
    {false, [](double, double, Filter, Image* i, Image*) { AutoContrast(i); }},
    {false, [](double, double, Filter, Image* i, Image*) { Equalize(i); }},
};

}  // namespace

Augmenter::Augmenter(const Augmentation& augmentation, const ReadPass& pass, int64_t sample)
    : augmentation_(augmentation), geometry_(pass, sample, kGeometry), colors_(pass, sample, kColors) {}

Box Augmenter::DrawBox(int width, int height, const Box& otherwise) {
  const Augmentation& a = augmentation_;
  if (a.crop_max == 0) return otherwise;
  Box box;
  return DrawShare(width, height, a.crop_min, a.crop_max, 3.0 / 4, 4.0 / 3, &geometry_, &box) ? box : otherwise;
}

Turn Augmenter::DrawTurn() {
  Turn turn;
  if (augmentation_.flip > 0) turn.mirror = geometry_.Chance(augmentation_.flip);
  if (augmentation_.vertical_flip > 0) turn.flip = geometry_.Chance(augmentation_.vertical_flip);
  return turn;
}

Affine Augmenter::DrawRotation() { return Rotation(geometry_.Uniform(-augmentation_.rotate, augmentation_.rotate)); }

void Augmenter::Rotate(bool mask, Image* image, Image* spare) {
  Warp(DrawRotation(), mask ? Filter::kNearest : Filter::kBilinear, image, spare);
}

void Augmenter::RandAugment(bool mask, Image* image, Image* spare) {
  for (int n = 0; n < augmentation_.randaugment; ++n) {
    const Operation& operation = kOperations[geometry_.Below(std::size(kOperations))];
    const double sign = geometry_.Chance(0.5) ? 1 : -1;
    if (!mask || operation.geometric)
      operation.apply(augmentation_.magnitude / kMaxMagnitude, sign, mask ? Filter::kNearest : Filter::kBilinear, image,
                      spare);
  }
}

void Augmenter::JitterColors(Image* image) {
  const double low = 1 - augmentation_.color, high = 1 + augmentation_.color;
  AdjustBrightness(colors_.Uniform(low, high), image);
  AdjustContrast(colors_.Uniform(low, high), image);
  AdjustSaturation(colors_.Uniform(low, high), image);
}

std::optional<Box> Augmenter::DrawErased(int width, int height) {
  Box box;
  if (augmentation_.erase == 0 || !colors_.Chance(augmentation_.erase)) return std::nullopt;
  return DrawShare(width, height, 0.02, 0.33, 0.3, 3.3, &colors_, &box) ? std::optional(box) : std::nullopt;
}

void Augmenter::Change(bool mask, Image* image, Image* spare) {
  if (augmentation_.rotate > 0) Rotate(mask, image, spare);
  if (augmentation_.randaugment > 0) RandAugment(mask, image, spare);
  if (mask) return;
  if (augmentation_.color > 0) JitterColors(image);
  if (const auto erased = DrawErased(image->width, image->height)) Erase(*erased, image);
}

}  // namespace onnxtrain
