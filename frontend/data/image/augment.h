// Applies augmentation to one sample. All choices are functions of (pass, sample): a picture and the mask that belongs
// to it are cut, turned and warped alike.
#pragma once

#include <array>
#include <optional>

#include "frontend/data/image/image.h"
#include "frontend/data/image/image_options.h"
#include "frontend/data/image/resample.h"
#include "frontend/data/load/keyed_random.h"

namespace onnxtrain {

// Changes of the colors and of the geometry of whole pictures, as torchvision's functional transforms define them.

// Moves each value away from a degenerate picture: to degenerate + factor · (value − degenerate), rounded and clamped.
// The picture is degenerate where it is black, all of its mean luma, grey, or blurred.
void AdjustBrightness(double factor, Image* image);
void AdjustContrast(double factor, Image* image);
void AdjustSaturation(double factor, Image* image);
void AdjustSharpness(double factor, Image* image, Image* spare);

// Inverts the values from `threshold` on.
void Solarize(int threshold, Image* image);
// Keeps the upper `bits` (1 to 8) of each value.
void Posterize(int bits, Image* image);
// Stretches the values of each channel to 0 … 255.
void AutoContrast(Image* image);
// Makes the values of each channel equally frequent.
void Equalize(Image* image);

// Fills the part with black.
void Erase(const Box& part, Image* image);

// Where an output pixel comes from, relative to the center: x' = m[0]·x + m[1]·y + m[2], y' = m[3]·x + m[4]·y + m[5].
using Affine = std::array<double, 6>;
// What comes from outside is black.
void Warp(const Affine& from, Filter filter, Image* image, Image* spare);

class Augmenter {
 public:
  Augmenter(const Augmentation& augmentation, const ReadPass& pass, int64_t sample);

  // Draws the part of a width × height picture that becomes the sample, of a share of its area and proportions of 3:4
  // to 4:3 (Szegedy et al., "Going deeper with convolutions", 2014); `otherwise` where crop is off.
  Box DrawBox(int width, int height, const Box& otherwise);
  // Draws mirror and flip.
  Turn DrawTurn();
  Affine DrawRotation();
  // Draws the rectangle that becomes black (Zhong et al., "Random erasing data augmentation", 2017).
  std::optional<Box> DrawErased(int width, int height);
  // Changes a picture of the sample's size, a mask by its geometry alone.
  void Change(bool mask, Image* image, Image* spare);

 private:
  void Rotate(bool mask, Image* image, Image* spare);
  void RandAugment(bool mask, Image* image, Image* spare);
  void JitterColors(Image* image);

  const Augmentation& augmentation_;
  KeyedRandom geometry_, colors_;
};

}  // namespace onnxtrain
