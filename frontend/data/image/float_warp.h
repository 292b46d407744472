// Augments pictures of floats.
#pragma once

#include <span>

#include "frontend/data/image/array_pictures.h"
#include "frontend/data/image/augment.h"

namespace onnxtrain {

// Cuts, turns, rotates and erases `from` as the augmenter draws it, with one bilinear interpolation. What comes from
// outside of the picture is 0. `from` and `to` do not overlap.
void AugmentFloats(const Augmentation& augmentation, const PixelLayout& layout, Augmenter* augmenter,
                   std::span<const float> from, std::span<float> to);

}  // namespace onnxtrain
