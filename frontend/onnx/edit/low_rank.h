// Finds the products of a model to which low-rank updates can be added (LoRA), and names weights by modules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/type.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/write/lazy_tensor.h"

namespace onnxtrain {

// A stored matrix W that only products x·W of data read, all in the same orientation; the weight of convolutions; the
// matrices of experts, stacked into one weight from which products select; or the part of a matrix that is a separate
// module in the exported program.
struct LowRankTarget {
  std::vector<std::string> nodes;  // the products, by their first outputs
  // "model.layers.0.self_attn.q_proj": from the weight's name or the scopes of the first node. Of experts the weight's
  // name, "model.layers.0.mlp.experts.down_proj".
  std::string module;
  std::string weight;                             // name in the graph
  DType dtype = DType::kFloat32;                  // element type of its floats
  int64_t inputs = 0, outputs = 0;                // extents of the matrix, or channels of a convolution
  int64_t outputs_before = 0, outputs_after = 0;  // outputs of the whole weight around those of a part
  std::string packed = {};                        // the module of the whole weight, if the target is a part; else ""
  Shape kernel;                                   // kernel of a convolution
  int64_t experts = 0;                            // matrices of a weight [experts, …, …]; 0: it is one matrix
  bool outputs_first = false;                     // stored as [outputs, inputs], like the weights of convolutions
  bool of_parameter = false;                      // its module is no layer that PEFT can wrap, such as a router
  bool output_layer = false;                      // computes the model's first output

  // Returns the module that has the whole weight.
  const std::string& weight_module() const { return packed.empty() ? module : packed; }
  // Returns the name of the weight in the exported program.
  std::string parameter() const { return experts > 0 ? module : weight_module() + ".weight"; }
};

// Returns the targets in the order of the nodes: matrices of floats or quantized numbers that MatMul, Gemm and
// MatMulNBits multiply by, perhaps transposed; float weights of Conv nodes without groups; stacked float matrices
// (FindExpertProduct); and the stacks of MoE and QMoE. Products that share a weight, or read copies of it that the file
// stores for each of them, are one target. Leaves out matrices that other nodes read as well, such as an embedding that
// is also the output layer: an update would have to change these, too. A product into which the exporter packed several
// modules is a target for each of them; with `packed` it is one target, for programs that have packed modules
// themselves. Equal names of modules get a number as suffix.
std::vector<LowRankTarget> ListLowRankTargets(const OnnxModel& model, bool packed = false);

// A product with a stored matrix that is no target.
struct LeftOutProduct {
  std::string module;
  std::string why;  // "is in a body of Loop 'layers'"
  bool in_body = false;
  bool output_layer = false;
};

// Returns the products whose weights other nodes read as well, or products in both orientations; then those in bodies
// of control flow.
std::vector<LeftOutProduct> ListLeftOutProducts(const OnnxModel& model);
// Returns those in bodies alone (body_products.cc). Their weights are initializers of the body or of a graph around it.
std::vector<LeftOutProduct> ListBodyProducts(const OnnxModel& model);

// Returns the floats of the weight of a target, as the file stores or quantizes it. Fails on columns that name their
// blocks (g_idx).
absl::StatusOr<LazyTensor> ReadTargetFloats(const OnnxModel& model, const LowRankTarget& target);

// A float initializer, or a copy of one, under its name in the exported module.
struct ModuleWeight {
  std::string name;         // "classifier.weight"
  std::string weight;       // name in the graph
  HostTensor value;         // shares the bytes of the graph's
  bool transposed = false;  // a Linear's matrix that the graph stores as [inputs, outputs]; PyTorch has the transpose
};

// Returns the float initializers in the order of the graph, then the Identity nodes that copy them. Weights of
// `targets` are named by their modules; others by the exporter's metadata, else as in the file.
std::vector<ModuleWeight> ListModuleWeights(const OnnxModel& model, const std::vector<LowRankTarget>& targets);

}  // namespace onnxtrain
