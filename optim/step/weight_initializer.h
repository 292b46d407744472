// Re-initializes weights; the distribution follows from the consuming operator.
//
//   matrix products, convolutions
//                       before a ReLU-like activation (Relu, LeakyRelu, Gelu, Silu, …): Kaiming (He et al., 2015),
//                       uniform in ±√(6/fan_in); before tanh, sigmoid or none: Xavier (Glorot & Bengio, 2010),
//                       uniform in ±√(6/(fan_in + fan_out))
//   biases              0
//   normalizations      scale 1, bias 0, running mean 0, running variance 1
//   embeddings, tables  normal with standard deviation 0.02 (as in BERT and GPT-2)
//   PRelu slopes        0.25
//   other weights       rank ≥ 2: like a product [out, in] without activation; lower rank: 0
//
// Fans are those of the product that reads the weight, however the weight is stored (transposed, reshaped).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct InitializedWeight {
  std::string name;
  HostTensor value;
  std::string how;  // "Kaiming uniform ±0.0722, fan in 288 (before Relu)", for people
};

// Draw elements uniformly from ±bound, and from a normal distribution of mean 0. They depend on the name, the shape and
// `seed` alone.
HostTensor DrawUniform(const std::string& name, const Type& type, double bound, uint64_t seed);
HostTensor DrawNormal(const std::string& name, const Type& type, double deviation, uint64_t seed);

// Returns new values for the named weights. `model` must have been imported for inference, which keeps normalizations
// as single nodes. A value depends only on its name, shape, consumer and `seed`, not on the other names or their order.
absl::StatusOr<std::vector<InitializedWeight>> InitializeWeights(const ImportedModel& model,
                                                                 const std::vector<std::string>& names, uint64_t seed);

}  // namespace onnxtrain
