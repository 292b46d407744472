// Augments pictures that arrays hold: samples of values, not files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "frontend/data/image/image_options.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// How the values of a sample are pixels.
struct PixelLayout {
  int height = 0, width = 0, channels = 1;
  bool channels_last = false;  // else planes, one behind the other

  bool SameSize(const PixelLayout& o) const { return height == o.height && width == o.width; }
};

// The layout of [h, w], [c, h, w] or [h, w, c] with 1 or 3 channels, or of a row of a square picture, [n²] or [3n²]
// with n ≥ 8; nullopt: the shape is none of them.
std::optional<PixelLayout> FindPixelLayout(const Shape& sample);

// Whether samples may be pixels of 8 bits, which --normalize applies to: of two axes or more, or a row of as many bytes
// as a square picture has (BindSpec::pixel_inputs tells which of these are).
bool HoldsPixels(const Type& sample);

struct ArrayPictures {
  int column = 0;
  PixelLayout layout;
  bool label = false;  // cut, turned and warped like the pictures, to the nearest pixel, whatever the values mean
};

// Can values of that type be augmented? 8-bit pixels can be changed in every way; of other numbers the range is
// unknown, so that colors cannot.
bool CanAugment(const Augmentation& augmentation, DType dtype);

// `source` with those columns changed in passes that augment. All choices are functions of (pass, sample), and equal
// for all columns but the colors. Requires CanAugment of all that are no labels, which have one size.
std::shared_ptr<const Dataset> AugmentArrays(std::shared_ptr<const Dataset> source, const Augmentation& augmentation,
                                             const std::vector<ArrayPictures>& pictures);

}  // namespace onnxtrain
