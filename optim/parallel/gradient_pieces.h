// How summed gradients are divided among ranks: each bucket is cut into pieces, of which every
// rank keeps and updates a slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "optim/parallel/shard.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

// Cuts the flat gradient into buckets that are summed over the ranks while the backward pass computes the next ones.

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

// `bytes` bytes of an output of the program, from `from` on, are at `to` in the piece. What no output is at is padding.
struct GradientPart {
  size_t output = 0;  // in the order of GradientPieces::outputs
  size_t from = 0, to = 0, bytes = 0;
};

struct GradientPiece {
  size_t bucket = 0;
  ShardUnit unit;
  std::vector<GradientPart> parts;
};

struct GradientPieces {
  std::vector<GradientBucket> buckets;
  std::vector<GradientPiece> pieces;  // in the order of the buckets
  std::vector<std::string> outputs;   // of all buckets
  DType dtype = DType::kFloat32;

  std::vector<ShardUnit> units() const;
  // Bytes of the slice of a piece: those of most ranks. The last ones may have less.
  size_t SliceBytes(size_t piece, int ranks) const;
  // Bytes of the largest piece, padded to equal slices.
  size_t LargestBytes(int ranks) const;
  // Bytes that a rank sends in a reduce-scatter, or in an all-gather, of all pieces.
  int64_t ScatteredBytes(int ranks) const;
};

using DividedWeights = std::map<std::string, DividedWeight>;

// Returns the trained weights that are worth dividing among so many ranks, in rows of about `target` bytes. Others are
// so small that a message costs more than their bytes.
DividedWeights ListDividedWeights(const TrainingState& state, int ranks, size_t target);

// Cuts the gradients of all trained weights into pieces of at most `target` bytes, or 64 elements. `forward` is the
// graph that reads the weights. The pieces of weights that so many ranks divide are their rows.
GradientPieces CutPieces(const TrainingState& state, const Graph& forward, DType dtype, size_t target,
                         const DividedWeights& divided = {}, int ranks = 1);

// Returns, by bucket, the outputs of a program that are complete with it and all buckets before: a program tells of
// buckets in this order only.
std::vector<std::vector<size_t>> FindOutputsUpTo(const GradientPieces& pieces, const Graph& graph);

}  // namespace onnxtrain
