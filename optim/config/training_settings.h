// Settings of the loss and the update in a model that was written with a training_info: a training step of plain
// operators does not tell the rule that it is of.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

// The key of the settings in the metadata of a model, and their value: JSON of a configuration (ToJson). "" where the
// loss or the rule is a file of its own. `trained`: names of the trained weights, recorded where the configuration
// chooses among them.
inline constexpr char kTrainingSettings[] = "onnxtrain.training_settings";
std::string ToTrainingSettings(const TrainConfig& config, const std::vector<std::string>& trained);

// Returns the configuration with the settings of the model, where fields of its own do not take precedence: an
// optimizer over the whole rule with its rate and decay; a field of the loss over the whole loss. Unchanged where the
// model has no settings, or wrong ones.
TrainConfig WithTrainingSettings(TrainConfig config, const OnnxModel& model);

// Names the fields of a configuration that are as the model has them: "optimizer adam, lr 0.01"; "" where none is.
std::string DescribeTrainingSettings(const TrainConfig& config, const OnnxModel& model);

}  // namespace onnxtrain
