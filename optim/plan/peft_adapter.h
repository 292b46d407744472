// Low-rank adapters in the format of PEFT: a folder with adapter_config.json and adapter_model.safetensors, which
// PeftModel.from_pretrained reads and save_pretrained writes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/edit/model_edits.h"
#include "optim/config/config.h"

namespace onnxtrain {

// Returns the divisor of lora_alpha in the scale of an update: the rank, or its root for rank-stabilized LoRA
// (Kalajdzievski, arXiv:2312.03732).
double AlphaDivisor(bool rank_stabilized, int64_t rank);

// Writes both files into `folder`, which is created. `edits` holds the updates and the weights of a new head, which
// become modules_to_save; `weights` holds A and B of every update and the weights of the head by name.
absl::Status WritePeftAdapter(const std::string& folder, const TrainConfig& config, const ModelEdits& edits,
                              const std::map<std::string, HostTensor>& weights);

// The adapter of one module, as the file names it: "model.layers.0.self_attn.q_proj".
struct PeftModule {
  std::string module;
  HostTensor a, b;  // [rank, inputs], [outputs, rank]; of a convolution [rank, inputs, kernel…], [outputs, rank, 1…]
  HostTensor magnitude;  // of DoRA, one number for each output; else without a shape
  double scale = 1, dropout = 0;
};

// Reads an adapter. Fails, naming the file and the module, on other kinds than LoRA, on tensors that do not fit
// together, on numbers that are not finite, and on what is not supported: biases, whole modules.
absl::StatusOr<std::vector<PeftModule>> ReadPeftAdapter(const std::string& folder);

}  // namespace onnxtrain
