// Writes the files of adapters: PEFT's folder, ONNX Runtime's file with the base that it belongs to, and a folder for
// onnxruntime-genai.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

inline constexpr char kAdapterFolder[] = "adapter", kGenaiFolder[] = "genai";  // in the folder of a run
inline constexpr char kOrtAdapterFile[] = "adapter.onnx_adapter", kAdapterInputsFile[] = "model.adapter-inputs.onnx";

// Returns true if `adapter_out`, or `otherwise` where it is not specified, names the form: merged, peft or onnx.
bool WritesAdapterAs(const TrainConfig& config, std::string_view form, std::string_view otherwise);

// The paths of the files, in a folder that exists.
struct AdapterPaths {
  std::string peft;     // a folder
  std::string adapter;  // of ONNX Runtime
  std::string base;     // the model with optional inputs
  std::string genai;    // a folder, if the model's folder has a genai_config.json for it; then the base goes there, too
};

// The trained weights and the forms in which they are written.
struct AdapterFiles {
  const TrainConfig& config;
  const OnnxModel& model;                            // with low-rank updates
  const std::map<std::string, HostTensor>& weights;  // A and B, and all others that have changed, by name
  bool peft = false, onnx = false;
};

// Fails if the files could not be written. Leaves none.
absl::Status CheckAdapterFiles(const AdapterFiles& files, const AdapterPaths& paths);

// Returns the paths that it wrote.
absl::StatusOr<std::vector<std::string>> WriteAdapterFiles(const AdapterFiles& files, const AdapterPaths& paths);

}  // namespace onnxtrain
