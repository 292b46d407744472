// Does a model come from training, or are its weights still what an initializer drew?
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "frontend/graph/host_tensor.h"

namespace onnxtrain::cli {

struct WeightOrigin {
  bool trained = false;
  std::string why;  // "BatchNorm statistics have moved", for people
};

struct NamedWeight {
  std::string name;
  HostTensor value;
  bool statistics = false;  // running mean or variance
};

// Initializers draw matrices from a uniform or a normal distribution (flat, or with excess kurtosis 0 and no outliers)
// of mean 0 and set vectors to a constant or to small uniform numbers; training moves BatchNorm statistics, gives tails
// and shifts. Judged by the larger part of the elements in tensors that are large enough to tell.
WeightOrigin JudgeWeights(const std::vector<NamedWeight>& weights);

}  // namespace onnxtrain::cli
