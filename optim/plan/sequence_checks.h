// Whether the outputs that ctc is computed on have enough steps for the labels of each sample.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/bad_samples.h"
#include "frontend/data/bind/binding.h"
#include "optim/step/prepared_models.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Returns a check for each term of the loss that aligns labels with steps; empty where none does, or where the samples
// are read as they come. `prepared` was prepared with these options. Where samples have sizes of their own, the model
// is imported with each of them, to see how many steps it gives. The checks refer to data.dataset.
absl::StatusOr<std::vector<SequenceCheck>> MakeSequenceChecks(PreparedModels& models, const SessionOptions& options,
                                                              const PreparedModel& prepared, const BoundData& data);

}  // namespace onnxtrain
