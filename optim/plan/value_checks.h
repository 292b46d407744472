// What a model demands of the values of its inputs: checked by the loader's threads, at no cost to a step.
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

// Whether the outputs that ctc is computed on have enough steps for the labels of each sample.

// Returns a check for each term of the loss that aligns labels with steps; empty where none does, or where the samples
// are read as they come. `prepared` was prepared with these options. Where samples have sizes of their own, the model
// is imported with each of them, to see how many steps it gives. The checks refer to data.dataset.
absl::StatusOr<std::vector<SequenceCheck>> MakeSequenceChecks(PreparedModels& models, const SessionOptions& options,
                                                              const PreparedModel& prepared, const BoundData& data);

// Sets FeedSpec::range of inputs that index a table of known extent, directly or through casts, reshapes and sums with
// a constant: ONNX's Gather takes -n to n-1. Sets allow_nan of inputs whose NaN the model replaces itself.
void AddValueChecks(const ImportedModel& model, std::vector<FeedSpec>* feeds);

// Finds, by value, what reaches a product, convolution or recurrent layer without any scaling or normalization.
std::vector<bool> FindUnscaled(const Graph& graph);

}  // namespace onnxtrain
