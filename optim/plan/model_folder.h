// Models and tokenizers in folders, as Hugging Face's hub and exporters lay them out: model.onnx or onnx/model.onnx
// beside tokenizer.json.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Returns the model in a folder: model.onnx, onnx/model.onnx, or the only .onnx file in either place. Fails where there
// are several, and lists them. Returns paths that are no folders unchanged.
absl::StatusOr<std::string> FindModelFile(const std::string& path);

inline constexpr char kTokenizerFolder[] = "tokenizer";  // in the folder of a run

// Returns the folder of a model's tokenizer files: that of the model, its folder "tokenizer", which runs write, or the
// one above a folder "onnx"; "": none has any.
std::string FindTokenizerFolder(const std::string& model);

}  // namespace onnxtrain
