// Gives a model optional inputs for the factors of low-rank updates. Only sources of frontend/onnx include it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "frontend/onnx/recover/weight_origin.h"

namespace onnx {
class ModelProto;
}  // namespace onnx

namespace onnxtrain {

// The parts of a model that become optional inputs.
struct AdapterInputs {
  std::vector<LowRankUpdate> updates;
  std::vector<std::string> weights;  // initializers
};

// Adds (x·A)·B to the result of each product of the updates (InsertLowRankNodes). A [inputs, rank] and B [rank,
// outputs] are inputs of the graph, as Olive's converter names them, with zeros as defaults and a free rank. The
// initializers become inputs with their values as defaults. Raises the IR version to 4, before which no default can be
// overridden. Fails, naming the product or initializer, if the file does not have it.
absl::Status AddAdapterInputs(const AdapterInputs& inputs, onnx::ModelProto* model);

}  // namespace onnxtrain
