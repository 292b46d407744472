// Changes of the colors and of the geometry of whole pictures, as torchvision's functional transforms define them.
#pragma once

#include <array>

#include "frontend/data/image/image.h"
#include "frontend/data/image/resample.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
