// Computes the head product, its cross entropy and their gradients for one block of rows after the other, so that the
// logits of all rows are never in memory at once.
//
// Results are those of the whole computation but for the order in which gradients of the weight and the bias are
// summed: by rows within a block, then over blocks. No product is computed twice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

struct CrossEntropyChunks {
  size_t min_bytes = size_t{64} << 20;  // of logits: fewer stay whole
  int64_t min_rows = 256;               // of a block: products of fewer rows are slow
  int64_t max_blocks = 16;
  int64_t row_multiple = 64;  // of the rows of a block, but for the last one
};

// Divides every CrossEntropy over logits [R,C] = x·w (+ bias) whose logits and log-probabilities nothing else reads
// than ArgMax over the classes, CrossEntropyGrad and the gradients of x, w and bias. Others stay as they are, also
// where the gradient of the losses depends on the losses.
absl::StatusOr<Graph> ChunkCrossEntropy(const Graph& graph, const CrossEntropyChunks& chunks = {});

// Is there a CrossEntropy that is large enough?
bool HasLargeCrossEntropy(const Graph& graph, const CrossEntropyChunks& chunks = {});

}  // namespace onnxtrain
