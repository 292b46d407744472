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
//   other weights       of rank ≥ 2: as a product [out, in] without activation; of lower rank: 0
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

// Returns new values for the weights of these names. `model` must have been imported for inference, which keeps
// normalizations as single nodes. A value depends on its name, shape, consumer and `seed` alone, not on the other names
// or their order.
absl::StatusOr<std::vector<InitializedWeight>> InitializeWeights(const ImportedModel& model,
                                                                 const std::vector<std::string>& names, uint64_t seed);

}  // namespace onnxtrain
