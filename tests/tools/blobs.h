// Samples of classes that numbers tell apart.
#pragma once

#include <cstdint>

#include "frontend/data/sources/numpy.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {

struct BlobShape {
  int64_t classes = 3;  // at most 4
  uint32_t seed = 7;
  float noise = 0.5f;
  double distance = 2;  // of a class from the others, along its axis
};

// Returns n samples of four numbers "x" and their class "label": i modulo the number of classes.
inline NamedArrays Blobs(int64_t n, const BlobShape& shape = {}) {
  HostTensor x({DType::kFloat32, {n, 4}}), y({DType::kInt64, {n}});
  const std::vector<float> noise = tiny::Uniform(n * 4, shape.noise, shape.seed);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t label = i % shape.classes;
    y.SetInt(i, label);
    for (int64_t j = 0; j < 4; ++j) x.Set(i * 4 + j, noise[i * 4 + j] + (j == label ? shape.distance : 0));
  }
  return {{"x", x}, {"label", y}};
}

}  // namespace onnxtrain
