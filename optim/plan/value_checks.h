// Checks that the values of inputs and labels fit the model. The loader's threads run the checks, so a step pays
// nothing.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/bad_samples.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/load/loader.h"
#include "frontend/onnx/import.h"
#include "optim/step/prepared_models.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Returns a check for each loss term that aligns labels with steps (ctc): whether the outputs have enough steps for the
// labels of a sample. Empty if there is no such term, or if the data is a stream. `prepared` was prepared with these
// options. If samples differ in size, imports the model with each size to count its steps. The checks refer to
// data.dataset.
absl::StatusOr<std::vector<SequenceCheck>> MakeSequenceChecks(PreparedModels& models, const SessionOptions& options,
                                                              const PreparedModel& prepared, const BoundData& data);

// Sets FeedSpec::range of inputs that index a table of known extent, directly or through casts, reshapes and sums with
// a constant: ONNX's Gather accepts -n to n-1. Sets allow_nan of inputs whose NaN values the model replaces.
void AddValueChecks(const ImportedModel& model, std::vector<FeedSpec>* feeds);

// Returns, by value id, whether the value reaches a matrix product, convolution or recurrent layer without scaling or
// normalization.
std::vector<bool> FindUnscaled(const Graph& graph);

}  // namespace onnxtrain
