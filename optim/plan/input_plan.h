// Decides how the inputs of a model are fed: which axis is the batch, which inputs are constants.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/plan/batch_axes.h"

namespace onnxtrain {

// The value of a constant for an input in the layout of the file: all elements of a number, free extents being 1, or
// the array of @FILE.npy.
absl::StatusOr<HostTensor> ReadConstant(const ModelInput& input, const std::string& text);

// What an input without a batch axis is where nothing is known: the rate of usual audio for a sampling rate, false, 1
// for other numbers, normal numbers for tensors of floats. Free extents are `size`.
HostTensor DefaultConstant(const ModelInput& input, int64_t size);

struct InputRequest {
  std::map<std::string, int64_t> dims;           // --dim
  std::map<std::string, std::string> constants;  // by input: a number or @FILE.npy
  std::vector<std::string> outputs;              // LossOutputs
  bool batch_axis = true;                        // else a sample of each input is the whole tensor
  bool sizes = true;  // find sizes for free dimensions; else only batch axes, where they are not obvious
};

// The inputs of a run without data. Feeds have sizes for their free dimensions that the model accepts, found by
// importing it; where it accepts none, `problem` is the error of the first attempt.
struct InputPlan {
  BatchAxes batch_axes;                       // of inputs and outputs
  std::map<std::string, HostTensor> fixed;    // empty caches, constants of the user, and defaults
  std::map<std::string, Shape> input_shapes;  // of feeds, the batch first and -1
  absl::Status problem;
};

// Fails on constants that fit no input.
absl::StatusOr<InputPlan> PlanInputs(const OnnxModel& model, const InputRequest& request);

}  // namespace onnxtrain
