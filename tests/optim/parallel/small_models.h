// Models of tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "frontend/base/strings.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {

// 4 → 48 → `second` → 48 → … → 48 → 3, without biases. With a second width of more than 96, its weights are larger than
// two others together, which are thus gathered ahead.
inline tiny::Model Stack(int layers, int64_t second = 48) {
  const auto width = [&](int layer) -> int64_t { return layer == 1 ? second : 48; };
  tiny::Model m = tiny::Mlp(3);
  m.nodes.clear(), m.weights.clear();
  std::string at = "x";
  for (int i = 0; i < layers; ++i) {
    const int64_t rows = i == 0 ? 4 : width(i - 1), columns = i + 1 == layers ? 3 : width(i);
    const std::string w = StrCat("w", i + 1), product = i + 1 == layers ? "y" : StrCat("p", i), next = StrCat("h", i);
    m.weights.push_back({w, {rows, columns}, tiny::Uniform(rows * columns, 0.2f, 7 + i)});
    m.nodes.push_back({"MatMul", {at, w}, {product}});
    if (i + 1 < layers) m.nodes.push_back({"Tanh", {product}, {next}});
    at = next;
  }
  return m;
}

// 4 → 16 → batch normalization → 3.
inline tiny::Model WithBatchNorm() {
  tiny::Model m = tiny::Mlp(3);
  m.nodes[3].inputs[0] = "normalized";
  m.nodes.insert(m.nodes.begin() + 3, {"BatchNormalization", {"h", "scale", "bias", "mean", "var"}, {"normalized"}});
  const auto filled = [](float x) { return std::vector<float>(16, x); };
  for (const auto& [name, value] : {std::pair("scale", 1.0f), {"bias", 0.0f}, {"mean", 0.1f}, {"var", 0.9f}})
    m.weights.push_back({name, {16}, filled(value)});
  return m;
}

}  // namespace onnxtrain
