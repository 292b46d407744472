// What a program that hands over its own batches says of them, in place of data.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/plan/caller_batches.h"
#include "optim/step/prepared_models.h"
#include "optim/step/session.h"

namespace onnxtrain {

// What the program says of a sample, without the batch axis. Everything may be left out that follows from the model.
struct CallerSample {
  std::map<std::string, Type> inputs;  // shapes of inputs with free dimensions
  std::map<std::string, Type> labels;  // by CallerTensor::name; none: those that the loss of the model's output takes
  // Axes of samples whose extents differ between batches, by tensor: one, or two one behind the other. The shapes have
  // the greatest extents, which are the same for all.
  std::map<std::string, std::vector<size_t>> varying;
};

// Returns the columns of such samples, without a data set.
absl::StatusOr<BoundData> BindCallerSample(const TrainConfig& config, const OnnxModel& model,
                                           const CallerSample& sample);

// Returns the batches that a session on the prepared model takes. Sets in *options which extents differ between
// batches. Fails where the sample has labels that the loss does not read.
absl::StatusOr<CallerBatches> MakeCallerBatches(const PreparedModel& prepared, const CallerSample& sample,
                                                int64_t ignore_index, SessionOptions* options);

}  // namespace onnxtrain
