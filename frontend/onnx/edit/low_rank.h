// Finds the products of a model that low-rank updates can be trained beside (LoRA).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frontend/graph/type.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// A stored matrix W that only products x·W of data read, all in the same orientation.
struct LowRankTarget {
  std::vector<std::string> nodes;  // the products, by their first outputs
  std::string module;  // "model.layers.0.self_attn.q_proj": from the weight's name or the scopes of the first node
  std::string weight;  // of the graph
  DType dtype = DType::kFloat32;  // of its floats
  int64_t inputs = 0, outputs = 0;
  bool outputs_first = false;  // stored as [outputs, inputs]
  bool output_layer = false;   // makes the model's first output
};

// Returns the targets in the order of the nodes: matrices of floats or quantized numbers that MatMul, Gemm and
// MatMulNBits multiply by, perhaps transposed. Leaves out a matrix that other nodes read as well, such as an embedding
// that is also the output layer: an update would have to change these, too. Equal modules get a number as suffix.
std::vector<LowRankTarget> ListLowRankTargets(const OnnxModel& model);

}  // namespace onnxtrain
