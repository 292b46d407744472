// Resizes pictures.
#pragma once

#include <vector>

#include "frontend/data/image/image.h"

namespace onnxtrain {

enum class Filter : uint8_t {
  kBilinear,  // antialiased: a triangle as wide as two output pixels, as Pillow's BILINEAR (within one level)
  kNearest    // for masks of classes
};

// Resizes parts of pictures. Keeps its buffers. One thread at a time.
class Resampler {
 public:
  // Resizes `part` of the whole picture that `in` shows (or shows a smaller copy of, then scaled likewise) to
  // out->width × out->height pixels of in.channels. `part` is in pixels of a picture of `info`. Nothing outside of the
  // part has an influence. `in` must hold all of the part.
  void Resize(const Image& in, const PictureInfo& info, const Box& part, Filter filter, int width, int height,
              Image* out);

 private:
  // Output pixel i is Σ_k weights[i·taps + k] · in[first[i] + k], k < taps. As many for each pixel: no branch depends
  // on it.
  struct Axis {
    int taps = 0;
    std::vector<int> first;
    std::vector<float> weights;
  };
  // Of the part [begin, begin + extent) of `in` pixels.
  static void SetTriangles(double begin, double extent, int in, int out, Axis* axis);
  static void SetNearest(double begin, double extent, int in, int out, Axis* axis);

  Axis x_, y_;
  std::vector<float> row_;    // a row of the output's height and the input's width
  std::vector<float> mixed_;  // a row of the output, not yet rounded
};

}  // namespace onnxtrain
