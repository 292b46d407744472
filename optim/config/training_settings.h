// Stores settings of the loss and the update in models that are written with a training_info, because a training step
// in standard operators does not show its rule.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain {

// The key of the settings in the metadata of a model. The value is JSON of a configuration (ToJson), or "" if the loss
// or the rule is a separate file. `trained` lists the trained weights, recorded if the configuration chooses among
// them.
inline constexpr char kTrainingSettings[] = "onnxtrain.training_settings";
std::string ToTrainingSettings(const TrainConfig& config, const std::vector<std::string>& trained);

// Returns the configuration with the settings of the model. Specified fields take precedence: an optimizer over the
// whole rule with its rate and decay, a field of the loss over the whole loss. Returns `config` unchanged if the model
// has no settings or invalid ones.
TrainConfig WithTrainingSettings(TrainConfig config, const OnnxModel& model);

// Lists the fields of a configuration that have the model's settings: "optimizer adam, lr 0.01"; "" if there are none.
std::string DescribeTrainingSettings(const TrainConfig& config, const OnnxModel& model);

}  // namespace onnxtrain
