// Changes the model before training: another number of classes, a new head, re-initialized weights.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

// Returns true if num_classes, head or reinit is set.
bool HasSurgery(const TrainConfig& config);
// Returns true if the model gets other outputs, which invalidates the classes and the loss of its preprocess.json.
bool ChangesClasses(const TrainConfig& config);

struct Surgery {
  std::shared_ptr<const OnnxModel> model;
  std::vector<std::string> fresh;  // weights of a new head or classifier
  std::vector<std::string> lines;  // the changes, for people
  std::string logits;              // the value to train on if a head was appended, else ""
};

// Applies num_classes, head and reinit. If `data` is null, assumes shapes, and num_classes auto fails. `value`
// becomes or feeds the classifier; "": found automatically.
absl::StatusOr<Surgery> ApplySurgery(const TrainConfig& config, const std::shared_ptr<const OnnxModel>& model,
                                     const BoundData* data, const std::string& value);

}  // namespace onnxtrain
