// What a model demands of the values of its inputs: checked by the loader's threads, at no cost to a step.
#pragma once

#include <vector>

#include "frontend/data/load/loader.h"
#include "frontend/onnx/import.h"

namespace onnxtrain {

// Sets FeedSpec::range of inputs that index a table of known extent, directly or through casts, reshapes and sums with
// a constant: ONNX's Gather takes -n to n-1. Sets allow_nan of inputs whose NaN the model replaces itself.
void AddValueChecks(const ImportedModel& model, std::vector<FeedSpec>* feeds);

// Finds, by value, what reaches a product, convolution or recurrent layer without any scaling or normalization.
std::vector<bool> FindUnscaled(const Graph& graph);

}  // namespace onnxtrain
