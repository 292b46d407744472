// Cuts the flat gradient into buckets, which are summed over the ranks while the backward pass computes the next ones,
// and buckets into pieces. If gradients are divided among ranks, every rank keeps and updates a slice of each piece.
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

// The gradient of one weight within the flat gradient.
struct GradientSlice {
  std::string name;  // of the program's output
  size_t offset = 0, bytes = 0;
  int64_t first_reader = 0;  // position of the first node of the forward graph that reads the weight
};

// Contiguous bytes of the flat gradient, and the program outputs in them.
struct GradientBucket {
  size_t offset = 0, bytes = 0;
  std::vector<std::string> outputs;
};

// Returns the slices of all trained weights, by flat group, in memory order. `forward` is the graph that reads the
// weights.
std::vector<std::vector<GradientSlice>> ListSlices(const TrainingState& state, const Graph& forward);

// Returns buckets that cover the slices and the padding between them. `groups` has the slices by flat group, in memory
// order; a bucket has slices of one group only, and at most `target` bytes or a single slice. Buckets are in the order
// in which the backward pass is expected to complete them, which is the reverse of the order in which the forward pass
// first reads the weights.
std::vector<GradientBucket> CutBuckets(const std::vector<std::vector<GradientSlice>>& groups, size_t target);

// Returns the names of the outputs by bucket.
std::vector<std::vector<std::string>> ListOutputs(const std::vector<GradientBucket>& buckets);

// Returns the indices of a program's outputs by bucket, for Program::NotifyWhenComplete. The program must output all of
// them.
std::vector<std::vector<size_t>> FindOutputs(const std::vector<GradientBucket>& buckets, const Graph& graph);

// Maps bytes [from, from + bytes) of a program output to offset `to` in a piece. Bytes of a piece that no part covers
// are padding.
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
  // Returns the bytes of a rank's slice of a piece. The last ranks may have fewer.
  size_t SliceBytes(size_t piece, int ranks) const;
  // Returns the bytes of the largest piece, padded to equal slices.
  size_t LargestBytes(int ranks) const;
  // Returns the bytes that a rank sends in a reduce-scatter, or in an all-gather, of all pieces.
  int64_t ScatteredBytes(int ranks) const;
};

using DividedWeights = std::map<std::string, DividedWeight>;

// Returns the trained weights that are worth dividing among `ranks` ranks, in rows of about `target` bytes. Smaller
// weights would cost more in messages than they save in memory.
DividedWeights ListDividedWeights(const TrainingState& state, int ranks, size_t target);

// Cuts the gradients of all trained weights into pieces of at most `target` bytes, or TrainingState::slice_multiple
// elements, which `ranks` ranks divide. `forward` is the graph that reads the weights. Weights in `divided` have one
// piece per row.
GradientPieces CutPieces(const TrainingState& state, const Graph& forward, DType dtype, size_t target,
                         const DividedWeights& divided = {}, int ranks = 1);

// Returns, by bucket, the outputs of a program that become complete with this bucket after all previous ones: a program
// reports buckets in this order only.
std::vector<std::vector<size_t>> FindOutputsUpTo(const GradientPieces& pieces, const Graph& graph);

}  // namespace onnxtrain
