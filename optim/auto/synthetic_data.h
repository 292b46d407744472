// Makes up samples that fit the inputs and the loss of a model, for runs without data.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/binding.h"
#include "frontend/onnx/import.h"
#include "optim/loss.h"

namespace onnxtrain {

// Shapes for every input, the batch as -1; free dimensions that `dims` does not name are 32. An input without a shape
// or without a batch axis is an error.
absl::StatusOr<std::map<std::string, Shape>> MakeSyntheticShapes(const OnnxModel& model, const LossSpec& loss,
                                                                 const std::map<std::string, int64_t>& dims);

// Adds to an error of a model that was imported with such shapes how to specify the right ones.
absl::Status AnnotateFreeDims(const absl::Status& status, const OnnxModel& model,
                              const std::map<std::string, int64_t>& dims);

// `size` samples, a function of the seed, shaped as above. Integer inputs that index a table stay inside it, masks are
// ones. `import` and `loss` are those of the run, without shapes of inputs.
absl::StatusOr<BoundData> MakeSyntheticData(const OnnxModel& model, const ImportOptions& import, const LossSpec& loss,
                                            int64_t size, uint64_t seed);

}  // namespace onnxtrain
