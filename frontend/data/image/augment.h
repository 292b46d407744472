// Random augmentation of pictures. All choices are functions of (pass, sample), so a picture and its mask are cut,
// turned and warped alike.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "frontend/base/philox.h"
#include "frontend/data/image/image.h"
#include "frontend/data/image/image_options.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// A stream of random numbers for one sample in one pass over the data, on whichever thread they are drawn. Equal (pass,
// sample, stream) yield equal numbers; different streams are independent.
class KeyedRandom {
 public:
  KeyedRandom(const ReadPass& pass, int64_t sample, uint32_t stream)
      : key_{Low(pass.seed), High(pass.seed)},
        counter_{0, stream << 24 ^ High(sample), Low(sample), static_cast<uint32_t>(pass.epoch)} {}

  uint32_t Word() {
    if (used_ == 4) {
      block_ = Philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }
  // Draws from [low, high).
  double Uniform(double low = 0, double high = 1) { return low + (high - low) * double(WordToUniform(Word())); }
  bool Chance(double p) { return Uniform() < p; }
  // Draws from [0, n).
  int64_t Below(int64_t n) { return static_cast<int64_t>((uint64_t{Word()} * static_cast<uint64_t>(n)) >> 32); }
  double Normal() {
    const uint32_t first = Word(), second = Word();
    return BoxMuller(first, second)[0];
  }

 private:
  static uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
  static uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

  std::array<uint32_t, 2> key_;
  PhiloxBlock counter_, block_ = {};
  int used_ = 4;
};

// The functions below change whole pictures in place, as torchvision's functional transforms do.

// Blend the picture with a degenerate one: degenerate + factor · (value − degenerate), rounded and clamped. The
// degenerate picture is black, has the mean luma everywhere, is grey, or is blurred, respectively. `spare` lends
// memory.
void AdjustBrightness(double factor, Image* image);
void AdjustContrast(double factor, Image* image);
void AdjustSaturation(double factor, Image* image);
void AdjustSharpness(double factor, Image* image, Image* spare);

// Inverts values ≥ `threshold`.
void Solarize(int threshold, Image* image);
// Keeps the upper `bits` (1 to 8) of each value.
void Posterize(int bits, Image* image);
// Stretches the values of each channel to 0 … 255.
void AutoContrast(Image* image);
// Equalizes the histogram of each channel.
void Equalize(Image* image);

// Fills `part` with black.
void Erase(const Box& part, Image* image);

// Maps an output pixel to its source, relative to the center: x' = m[0]·x + m[1]·y + m[2], y' = m[3]·x + m[4]·y + m[5].
using Affine = std::array<double, 6>;
// Warps the picture in place; pixels from outside are black.
void Warp(const Affine& from, Filter filter, Image* image, Image* spare);

class Augmenter {
 public:
  Augmenter(const Augmentation& augmentation, const ReadPass& pass, int64_t sample);

  // Draws the crop of a width × height picture: a random share of its area with an aspect ratio of 3:4 to 4:3 (Szegedy
  // et al., "Going deeper with convolutions", 2014). Returns `otherwise` if cropping is off.
  Box DrawBox(int width, int height, const Box& otherwise);
  // Draws horizontal and vertical flips.
  Turn DrawTurn();
  Affine DrawRotation();
  // Draws the rectangle to erase (Zhong et al., "Random erasing data augmentation", 2017); nullopt: none.
  std::optional<Box> DrawErased(int width, int height);
  // Applies rotation, RandAugment and color changes to a picture of the sample's size; only the geometry to a mask.
  void Change(bool mask, Image* image, Image* spare);

 private:
  void Rotate(bool mask, Image* image, Image* spare);
  void RandAugment(bool mask, Image* image, Image* spare);
  void JitterColors(Image* image);

  const Augmentation& augmentation_;
  KeyedRandom geometry_, colors_;
};

}  // namespace onnxtrain
