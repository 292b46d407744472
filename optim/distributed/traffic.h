// What a rank of data parallel training sends.
#pragma once

#include <cstdint>

namespace onnxtrain {

struct UpdateTraffic {
  int ranks = 1;
  int64_t gradient_bytes = 0;  // of all weights, in float32
  bool rounds = false;         // DataParallelOptions::rounds
  bool divides = false;        // moments
  int64_t micros = 0;          // of a global batch, where a tree sums them (GradientTree); else 0
};

// Returns the bytes that a rank sends in an update, where each of N ranks sends (N − 1)/N of every tensor in a
// reduce-scatter, and in an all-gather. A gradient is reduced and gathered, a divided weight is gathered; a tree
// reduces as many gradients as its widest rank has nodes.
int64_t SentBytes(const UpdateTraffic& traffic);

}  // namespace onnxtrain
