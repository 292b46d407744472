// Changes of the model before training: another number of classes, a new head, re-initialized weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

// Is one of num_classes, head and reinit set?
bool HasSurgery(const TrainConfig& config);
// Does the model get other outputs, so that the classes and the loss of its preprocess.json are void?
bool ChangesClasses(const TrainConfig& config);

struct Surgery {
  std::shared_ptr<const OnnxModel> model;
  std::vector<std::string> fresh;  // weights of a new head or classifier
  std::vector<std::string> lines;  // what was done, for people
  std::string logits;              // the value to train on where a head was appended, else ""
};

// Applies num_classes, head and reinit. `data` is null where there is none: then shapes are made up, and num_classes
// auto fails. `value` is the value that becomes or feeds the classifier; "": found.
absl::StatusOr<Surgery> ApplySurgery(const TrainConfig& config, const std::shared_ptr<const OnnxModel>& model,
                                     const BoundData* data, const std::string& value);

}  // namespace onnxtrain
