// Applies augmentation to one sample. All choices are functions of (pass, sample): a picture and the mask that belongs
// to it are cut, turned and warped alike.
#pragma once

#include <optional>

#include "frontend/data/image/adjust.h"
#include "frontend/data/image/augmentation.h"
#include "frontend/data/image/image.h"
#include "frontend/data/image/resample.h"
#include "frontend/data/load/keyed_random.h"

namespace onnxtrain {

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
