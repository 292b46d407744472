// Memory of a training session by purpose, in bytes.
#pragma once

#include <cstdint>

namespace onnxtrain {

// Allocated by a session, or planned by one that only plans.
struct SessionMemory {
  int64_t parameters = 0;  // trained and frozen
  int64_t gradients = 0;   // flat arenas; gradients of a one-program step are activations
  int64_t sums = 0;        // of micro-batches, in SessionOptions::deterministic
  int64_t moments = 0;
  int64_t statistics = 0;   // running and pending statistics, device scalars
  int64_t packed = 0;       // values derived from weights
  int64_t feeds = 0;        // feeds and outputs of the program with the largest ones
  int64_t activations = 0;  // the arena of all programs, with workspaces, or `compiling`
  int64_t host = 0;         // the model, memory of the caller, libraries

  int64_t compiling = 0;  // of activations, what compiling takes, while no program runs
  int64_t reserved = 0;   // of the total, as RecomputeSpec::reserved

  int64_t total() const {
    return parameters + gradients + sums + moments + statistics + packed + feeds + activations + host;
  }
};

}  // namespace onnxtrain
