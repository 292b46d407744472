// A valid node for each operator of convolution, pooling, normalization, attention, randomness and losses.
#pragma once

#include <string>
#include <vector>

#include "frontend/graph/attrs.h"
#include "frontend/graph/type.h"

namespace onnxtrain {

struct Example {
  std::string op;
  std::vector<Type> inputs;
  Attrs attrs;
};

inline std::vector<Example> Examples() {
  constexpr DType f = DType::kFloat64, i = DType::kInt64, u = DType::kUInt32;
  using Ints = std::vector<int64_t>;
  const Attrs conv = {{"strides", Ints{2, 1}}, {"pads", Ints{1, 0, 0, 1}}, {"dilations", Ints{1, 2}}, {"group", int64_t{2}}};
  const Attrs pool = {{"kernel_shape", Ints{2, 3}}, {"strides", Ints{1, 2}}, {"pads", Ints{1, 0, 0, 1}}, {"dilations", Ints{1, 1}}};
  auto with = [](Attrs attrs, std::string name, AttrValue value) {
    attrs.Set(std::move(name), std::move(value));
    return attrs;
  };
  const Shape x = {2, 4, 5, 6}, w = {6, 2, 2, 3}, y = {2, 6, 3, 3}, p = {2, 4, 5, 3};
  const Attrs axis = {{"axis", int64_t{1}}};
  const Attrs labels = {{"ignore_index", int64_t{1}}, {"label_smoothing", 0.1}};
  using Numbers = std::vector<double>;
  const Attrs resample = {{"axes", Ints{1, 2}}, {"sizes", Ints{5, 2}}, {"position", Numbers{0.5, 3, 5, -0.5, 0, 4, 2, 0}},
                          {"stretch", Numbers{1, 2}}, {"mode", std::string("linear")}};
  const Attrs grid = {{"mode", std::string("cubic")}, {"padding_mode", std::string("border")}, {"align_corners", int64_t{1}}};
  const Attrs roi = {{"mode", std::string("max")}, {"output_height", int64_t{2}}, {"sampling_ratio", int64_t{2}}};
  const Attrs random = {{"shape", Ints{2, 3}}, {"stream", int64_t{5}}};
  return {
      {"Conv", {{f, x}, {f, w}, {f, {6}}}, conv},
      {"ConvTranspose", {{f, y}, {f, w}}, with(conv, "output_shape", Ints{5, 6})},
      {"ConvWeightGrad", {{f, x}, {f, y}}, with(conv, "kernel_shape", Ints{2, 3})},
      {"MaxPool", {{f, x}}, pool},
      {"MaxPoolGrad", {{f, p}, {i, p}}, {{"input_shape", x}}},
      {"AveragePool", {{f, x}}, pool},
      {"AveragePoolGrad", {{f, p}}, with(pool, "input_shape", x)},
      {"Resample", {{f, {2, 3, 4}}}, resample},
      {"ResampleGrad", {{f, {2, 5, 2}}}, with(resample, "input_sizes", Ints{3, 4})},
      {"GridSample", {{f, {2, 3, 4, 5}}, {f, {2, 3, 2, 2}}}, grid},
      {"GridSample", {{f, {2, 3, 4, 5, 2}}, {f, {2, 3, 2, 2, 3}}}, {}},
      {"GridSampleInputGrad", {{f, {2, 3, 3, 2}}, {f, {2, 3, 2, 2}}}, with(grid, "input_shape", Ints{2, 3, 4, 5})},
      {"GridSampleGridGrad", {{f, {2, 3, 3, 2}}, {f, {2, 3, 4, 5}}, {f, {2, 3, 2, 2}}}, grid},
      {"RoiAlign", {{f, {2, 3, 4, 5}}, {f, {3, 4}}, {i, {3}}}, roi},
      {"RoiAlignGrad", {{f, {3, 3, 2, 1}}, {f, {3, 4}}, {i, {3}}, {f, {2, 3, 4, 5}}}, with(roi, "input_shape", Ints{2, 3, 4, 5})},
      {"Det", {{f, {2, 3, 3}}}, {}},
      {"Cofactor", {{f, {2, 3, 3}}}, {}},
      {"BatchNorm", {{f, x}, {f, {4}}, {f, {4}}}, {}},
      {"BatchNormGrad", {{f, x}, {f, x}, {f, {4}}, {f, {4}}, {f, {4}}}, {}},
      {"BatchNormInference", {{f, x}, {f, {4}}, {f, {4}}, {f, {4}}, {f, {4}}}, {}},
      {"LayerNorm", {{f, {3, 2, 4}}, {f, {2, 4}}, {f, {2, 4}}}, axis},
      {"LayerNorm", {{f, {3, 2, 4}}, {f, {2, 4}}}, axis},
      {"LayerNormGrad", {{f, {3, 2, 4}}, {f, {3, 2, 4}}, {f, {2, 4}}, {f, {3, 1, 1}}, {f, {3, 1, 1}}}, axis},
      {"RmsNorm", {{f, {3, 2, 4}}, {f, {2, 4}}}, axis},
      {"RmsNormGrad", {{f, {3, 2, 4}}, {f, {3, 2, 4}}, {f, {2, 4}}, {f, {3, 1, 1}}}, axis},
      {"Softmax", {{f, {3, 4, 2}}}, axis},
      {"LogSoftmax", {{f, {3, 4, 2}}}, axis},
      {"SoftmaxGrad", {{f, {3, 4, 2}}, {f, {3, 4, 2}}}, axis},
      {"LogSoftmaxGrad", {{f, {3, 4, 2}}, {f, {3, 4, 2}}}, axis},
      {"Attention", {{f, {2, 3, 4, 5}}, {f, {2, 3, 6, 5}}, {f, {2, 3, 6, 2}}, {f, {2, 1, 1, 6}}}, {{"scale", 0.5}}},
      {"Attention", {{f, {4, 5}}, {f, {6, 5}}, {f, {6, 2}}}, {}},
      {"Attention", {{DType::kFloat16, {4, 5}}, {DType::kFloat16, {6, 5}}, {DType::kFloat16, {6, 2}}}, {}},
      {"CrossEntropy", {{f, {3, 4, 2}}, {i, {3, 2}}}, labels},
      {"CrossEntropyGrad", {{f, {3, 2}}, {f, {3, 4, 2}}, {i, {3, 2}}}, labels},
      {"BinaryCrossEntropyWithLogits", {{f, {3, 4}}, {f, {3, 4}}}, {}},
      {"Dropout", {{f, {3, 4}}, {u, {4}}}, {{"ratio", 0.25}, {"stream", int64_t{3}}}},
      {"RandomUniform", {{u, {4}}}, random},
      {"RandomNormal", {{u, {4}}}, random},
  };
}

}  // namespace onnxtrain
