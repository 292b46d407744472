// preprocess.json: what was done to the data that a model was trained on. Training writes it beside the model; the
// other subcommands read it from there, so that the same file of data means the same thing again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onnxtrain::cli {

struct Preprocess {
  std::string normalize;                                   // value of --normalize; "" where nothing was an image
  std::map<std::string, std::vector<std::string>> inputs;  // model input → column names
  std::map<std::string, std::vector<int64_t>> layout;      // model input → shape of one sample
  std::vector<std::string> label;                          // column names
  std::vector<std::string> classes;                        // names in the order of the labels, where they have names
  std::string loss, output;                                // "cross_entropy" on model output "probs"
};

std::string ToJson(const Preprocess& preprocess);
// Fails with what is wrong; unknown keys are ignored.
absl::StatusOr<Preprocess> ParsePreprocess(const std::string& json);

// DIR/preprocess.json for DIR/model.onnx.
std::string PreprocessPath(const std::string& model_path);
// nullopt where the file is not there; an error names it.
absl::StatusOr<std::optional<Preprocess>> ReadPreprocess(const std::string& model_path);

}  // namespace onnxtrain::cli
