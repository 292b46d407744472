// Predicts the bytes that a rank of data parallel training sends.
#pragma once

#include <cstdint>

#include "frontend/graph/graph.h"
#include "optim/parallel/shard.h"

namespace onnxtrain {

struct UpdateTraffic {
  int ranks = 1;
  int64_t gradient_bytes = 0;  // of all weights, in float32
  bool send_bf16 = false;      // DataParallelOptions::send_bf16
  ShardLevel shard = ShardLevel::kNone;
  int64_t micros = 0;            // micro-batches of a global batch if GradientTree sums them; else 0
  int64_t rounds_of_micros = 1;  // micro-batches of the rank with most of them
  int64_t divided_bytes = 0;     // with kFull: of the weights that are divided
  int64_t graph_bytes = 0;       // that a rank sends in a round within its program (CountTraffic)
};

// Returns the bytes that a rank sends in an update. Each of N ranks sends (N − 1)/N of every tensor in a reduce-scatter
// and in an all-gather. A gradient is reduced and gathered; a weight that ranks update in parts is gathered; a tree
// reduces as many gradients as the rank with the most nodes has. Divided gradients (kGradients) are reduced in every
// round and not gathered. Divided weights (kFull) are gathered only within programs.
int64_t SentBytes(const UpdateTraffic& traffic);

// The collective operators in one run of a program, and the bytes that a rank sends in them with ring algorithms.
struct ProgramTraffic {
  int64_t exchanges = 0, bytes = 0;
};
ProgramTraffic CountTraffic(const Graph& program);
// Returns the bytes of the weights that the program gathers, each counted once.
int64_t CountGathered(const Graph& program);

// Returns the largest number of micro-batches of `micro` samples that a rank runs, in whole or in part. `unit` is as in
// ShareOfRank.
int64_t CountRounds(int64_t samples, int64_t micro, int64_t unit, int ranks);

}  // namespace onnxtrain
