// Computes the output projection of a classifier, its cross entropy and their gradients block by block of rows, so that
// the logits of all rows are never in memory at once.
//
// Results equal those of the whole computation except for the order in which the gradients of weight and bias are
// summed: over the rows of a block, then over blocks. No product is computed twice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct CrossEntropyChunks {
  size_t min_bytes = size_t{64} << 20;  // bytes of logits below which they are not divided
  int64_t min_rows = 256;               // rows per block; products with fewer rows are slow
  int64_t max_blocks = 16;
  int64_t row_multiple = 64;  // divides the rows of every block but the last
};

// Divides every CrossEntropy over logits [R,C] = x·w (+ bias) whose logits and log-probabilities are read only by
// ArgMax over the classes, CrossEntropyGrad and the gradients of x, w and bias. Does not divide a CrossEntropy whose
// incoming gradient depends on the losses.
absl::StatusOr<Graph> ChunkCrossEntropy(const Graph& graph, const CrossEntropyChunks& chunks = {});

// Returns true if the graph has a CrossEntropy with at least `min_bytes` of logits and two blocks of rows.
bool HasLargeCrossEntropy(const Graph& graph, const CrossEntropyChunks& chunks = {});

}  // namespace onnxtrain
