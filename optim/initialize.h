// Draws weights anew, as their place in the graph asks.
//
//   products, convolutions  Kaiming (He et al., 2015), uniform in ±√(6/fan_in), where the next activation is ReLU-like (Relu,
//                           LeakyRelu, Gelu, Silu, …); before tanh, sigmoid or no activation Xavier (Glorot & Bengio, 2010),
//                           uniform in ±√(6/(fan_in + fan_out))
//   biases                  0
//   norms                   scale 1, bias 0, running mean 0 and variance 1
//   embeddings, tables      normal, deviation 0.02 (as BERT and GPT-2 do)
//   PRelu slopes            0.25
//   everything else         of rank 2 and more as a product [out, in] with nothing behind it; of less: 0
//
// Fans are those of the product that reads the weight, however it is stored (transposed, reshaped).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

struct DrawnWeight {
  std::string name;
  HostTensor value;
  std::string how;  // "Kaiming uniform ±0.0722, fan in 288 (before Relu)", for people
};

// The weights of these names. `model` has been imported for inference, so that norms are norms. A value depends on its name,
// shape, place and `seed` alone, not on the other names or their order.
absl::StatusOr<std::vector<DrawnWeight>> DrawWeights(const ImportedModel& model, const std::vector<std::string>& names,
                                                     uint64_t seed);

}  // namespace onnxtrain
