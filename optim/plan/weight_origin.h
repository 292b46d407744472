// Tells a pre-trained model from one whose weights an initializer drew.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

struct ModelOrigin {
  bool trained = false;
  std::string why;  // for people
};

struct NamedWeight {
  std::string name;
  HostTensor value;
  bool statistics = false;  // running mean or variance
};

// Initializers draw matrices from a uniform or a normal distribution (flat, or with excess kurtosis 0 and no outliers)
// of mean 0; training shifts them and adds tails. The class with more elements wins, among the tensors that are large
// enough to classify.
ModelOrigin ClassifyWeightOrigin(const std::vector<NamedWeight>& weights);

}  // namespace onnxtrain
