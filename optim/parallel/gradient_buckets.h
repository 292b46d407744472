// Cuts the flat gradient into buckets that are summed over the ranks while the backward pass computes the next ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

// The gradient of a weight in the flat gradient.
struct GradientSlice {
  std::string name;  // of the program's output
  size_t offset = 0, bytes = 0;
  int64_t first_reader = 0;  // of the weight: a position in the graph of the forward pass
};

// Contiguous bytes of the flat gradient, with the outputs that they consist of.
struct GradientBucket {
  size_t offset = 0, bytes = 0;
  std::vector<std::string> outputs;
};

// Returns the slices of all trained weights, by flat group, in the order of their memory. `forward` is the
// graph that reads the weights.
std::vector<std::vector<GradientSlice>> ListSlices(const TrainingState& state, const Graph& forward);

// Returns buckets that cover the slices and the padding between them. `groups`: slices by flat group, in the order of
// their memory; no bucket has slices of two. A bucket has at most `target` bytes, or a single slice. The buckets come
// in the order in which a backward pass is expected to complete them: it reaches a weight that the forward pass reads
// first at its end.
std::vector<GradientBucket> CutBuckets(const std::vector<std::vector<GradientSlice>>& groups, size_t target);

// Returns their names by bucket.
std::vector<std::vector<std::string>> ListOutputs(const std::vector<GradientBucket>& buckets);

// Returns the outputs of a program by bucket, as Program::NotifyWhenComplete takes them. It must have all of them.
std::vector<std::vector<size_t>> FindOutputs(const std::vector<GradientBucket>& buckets, const Graph& graph);

}  // namespace onnxtrain
