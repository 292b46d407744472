#include "frontend/data/image/augment.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace onnxtrain {
namespace {

enum Stream : uint8_t { kGeometry = 1, kColors = 2 };

constexpr int kTries = 10;
constexpr double kMaxMagnitude = 30;

// Draws a box of a share of the area and of proportions between the limits; false where none fits.
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

// An operation of RandAugment (Cubuk et al., 2019) at strength 0 to 1, which has a random sign where that has a
// meaning.
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
