// Finds the products of a model that low-rank updates can be trained beside (LoRA), and names weights by modules.
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
  DType dtype = DType::kFloat32;
  int64_t inputs = 0, outputs = 0;
  bool outputs_first = false;  // stored as [outputs, inputs]
  bool output_layer = false;   // makes the model's first output
};

// Returns the targets in the order of the nodes: float matrices that are the second operand, perhaps transposed, of
// MatMul and Gemm nodes. Leaves out a matrix that other nodes read as well, such as an embedding that is also the
// output layer: merging an update would change these, too. Equal names of modules get a number as suffix.
std::vector<LowRankTarget> ListLowRankTargets(const OnnxModel& model);

// A float initializer, or a copy of one, under its name in the exported module.
struct ModuleWeight {
  std::string name;         // "classifier.weight"
  std::string weight;       // of the graph
  HostTensor value;         // shares the bytes of the graph's
  bool transposed = false;  // a Linear's matrix that the graph stores as [inputs, outputs]; PyTorch has the transpose
};

// Returns the float initializers in the order of the graph, then the Identity nodes that copy them. Weights of
// `targets` are named by their modules; others by the exporter's metadata, else as in the file.
std::vector<ModuleWeight> ListModuleWeights(const OnnxModel& model, const std::vector<LowRankTarget>& targets);

}  // namespace onnxtrain
