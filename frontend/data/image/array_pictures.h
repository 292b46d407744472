// Augments pictures that are stored in arrays instead of files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "frontend/data/image/image_options.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// The layout of a sample's values as pixels.
struct PixelLayout {
  int height = 0, width = 0, channels = 1;
  bool channels_last = false;  // false: planes

  bool SameSize(const PixelLayout& o) const { return height == o.height && width == o.width; }
};

// Returns the layout of [h, w], [c, h, w] or [h, w, c] with 1 or 3 channels, or of a flattened square picture, [n²] or
// [3n²] with n ≥ 8; nullopt for other shapes.
std::optional<PixelLayout> FindPixelLayout(const Shape& sample);

// Returns true if samples may be 8-bit pixels, which --normalize applies to: two axes or more, or a flattened square
// picture (BindSpec::pixel_inputs tells those from other vectors).
bool HoldsPixels(const Type& sample);

struct ArrayPictures {
  int column = 0;
  PixelLayout layout;
  bool label = false;  // a mask: changed like the picture, by nearest-pixel geometry, with values copied unchanged
};

// Returns true if values of the type can be augmented this way. Colors are changed for 8-bit pixels only, since the
// range of other numbers is unknown.
bool CanAugment(const Augmentation& augmentation, DType dtype);

// Returns a view of `source` that changes these columns in passes that augment. All choices are functions of (pass,
// sample) and equal for all columns, except those about colors. Requires CanAugment for all columns that are not
// labels, which have the same size.
std::shared_ptr<const Dataset> AugmentArrays(std::shared_ptr<const Dataset> source, const Augmentation& augmentation,
                                             const std::vector<ArrayPictures>& pictures);

}  // namespace onnxtrain
