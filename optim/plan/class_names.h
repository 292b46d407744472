// The names of the classes of recognizers of text, and the form of their pictures, in the files of a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

// How a recognizer takes pictures; empty or 0: unknown.
struct PictureForm {
  std::string normalize, channel_order;  // as in the configuration
  int64_t height = 0;
};

struct ClassNames {
  std::vector<std::string> names;
  std::string where;  // the file or the metadata that has them
  bool blank_is_last = false;
  PictureForm pictures;
};

// Finds the names of the classes: those of class_map, of the model's metadata (character), or of a file beside it
// (inference.yml, vocab.json, tokens.txt, …). Returns nullopt if there are none. Errors name the file.
absl::StatusOr<std::optional<ClassNames>> FindClassNames(const TrainConfig& config, const OnnxModel& model);

}  // namespace onnxtrain
