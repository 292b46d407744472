// Low-rank adapters in the format of PEFT: a folder with adapter_config.json and adapter_model.safetensors, which
// PeftModel.from_pretrained reads and save_pretrained writes.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

// Returns the divisor of lora_alpha in the scale of an update: the rank, or its root for rank-stabilized LoRA
// (Kalajdzievski, arXiv:2312.03732).
double AlphaDivisor(bool rank_stabilized, int64_t rank);

// Writes both files into `folder`, which is created. `model` has low-rank updates; `weights` holds their A and B, and
// every other weight that the run has changed, by name. The others become modules_to_save, or biases.
absl::Status WritePeftAdapter(const std::string& folder, const TrainConfig& config, const OnnxModel& model,
                              const std::map<std::string, HostTensor>& weights);

// The adapter of one module, as the file names it: "model.layers.0.self_attn.q_proj".
struct AdapterModule {
  std::string module;
  // The number of PEFT's wrappers around the module that this one is inside of: parameters of one module, such as the
  // weights of experts, have nested wrappers, the last parameter the outermost.
  int64_t depth = 0;
  HostTensor a, b;  // [rank, inputs], [outputs, rank]; of a convolution [rank, inputs, kernel…], [outputs, rank, 1…]
  HostTensor magnitude;  // of DoRA, one number for each output; else without a shape
};

// The content of an adapter's files.
struct AdapterContent {
  std::vector<AdapterModule> modules;       // in the order of their names
  std::map<std::string, HostTensor> whole;  // weights that replace those of the model: "classifier.weight"
  bool inputs_first = false;                // their matrices are [inputs, outputs], as of GPT-2's Conv1D
  double dropout = 0;
  std::vector<std::string> parameters;  // target_parameters: ends of the names of weights
  // Returns the scale of an update by the name of its module or parameter, and its rank.
  std::function<double(const std::string& name, int64_t rank)> scale;
};

// Reads an adapter: a folder with both files, the folder of a run that holds it, or the .safetensors file beside its
// adapter_config.json. Fails, naming the file and the tensor, on other kinds than LoRA, on an A without its B,
// on tensors that do not fit together, and on numbers that are not finite.
absl::StatusOr<AdapterContent> ReadPeftAdapter(const std::string& path);

// Reads an adapter of ONNX Runtime whose tensors have the names of PEFT's and are their transposes, as `adapter_out`
// onnx and Olive write them.
absl::StatusOr<AdapterContent> ReadOrtAdapterContent(const std::string& path);

}  // namespace onnxtrain
