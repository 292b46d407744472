// Makes up samples that fit the inputs and the loss of a model, for runs without data.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/onnx/import.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"

namespace onnxtrain {

// Returns what the error of a model that was imported with such shapes ends in: how to specify the right ones. "" where
// no dimension is free.
std::string DescribeFreeDims(const OnnxModel& model, const std::map<std::string, int64_t>& dims);

// `size` samples, a function of the seed, shaped as above. Integer inputs that index a table stay inside it, masks are
// ones. `import` (MakeImportOptions) and `loss` are those of the run; labels fit the outputs of micro-batches of
// `micro_batch`, which may depend on it (scores of samples against each other).
absl::StatusOr<BoundData> MakeSyntheticData(PreparedModels& models, const ImportOptions& import, const LossSpec& loss,
                                            int64_t size, int64_t micro_batch, uint64_t seed);

}  // namespace onnxtrain
