// Decides how the inputs of a model are fed: which axis is the batch, which inputs are constants.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/plan/batch_axes.h"

namespace onnxtrain {

// Reads a constant for an input, in the layout of the file: the array of @FILE.npy, or a number that fills all
// elements, with free extents of 1.
absl::StatusOr<HostTensor> ReadConstant(const ModelInput& input, const std::string& text);

// Returns a default value for an input without a batch axis: the usual audio rate for a sampling rate, false for
// booleans, 1 for other numbers, normally distributed values for float tensors. Free extents become `size`.
HostTensor DefaultConstant(const ModelInput& input, int64_t size);

struct InputRequest {
  std::map<std::string, int64_t> dims;           // --dim
  std::map<std::string, std::string> constants;  // by input: a number or @FILE.npy
  std::vector<std::string> outputs;              // LossOutputs
  bool batch_axis = true;                        // false: a sample of each input is the whole tensor
  bool sizes = true;  // finds sizes for free dimensions; false: finds only batch axes that are not obvious
};

// Describes the inputs of a run without data. The free dimensions of feeds have sizes that the model accepts, found by
// importing it; if it accepts none, `problem` is the error of the first attempt.
struct InputPlan {
  BatchAxes batch_axes;                       // axes of inputs and outputs
  std::map<std::string, HostTensor> fixed;    // empty caches, the user's constants, and defaults
  std::map<std::string, Shape> input_shapes;  // shapes of feeds; the batch axis comes first and is -1
  absl::Status problem;
};

// Plans the inputs. Fails on constants that fit no input.
absl::StatusOr<InputPlan> PlanInputs(const OnnxModel& model, const InputRequest& request);

}  // namespace onnxtrain
