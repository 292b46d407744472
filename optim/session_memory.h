// The bytes of a training session, by what they are for.
#pragma once

#include <cstdint>

namespace onnxtrain {

// What a session holds, or would hold once it has run.
struct SessionMemory {
  int64_t parameters = 0;   // trained and frozen
  int64_t gradients = 0;    // with memory of their own; within a one-program step they are activations
  int64_t moments = 0;
  int64_t statistics = 0;   // running ones, pending ones, counters
  int64_t packed = 0;       // derived from weights
  int64_t feeds = 0;        // and outputs: of the program that has most of them
  int64_t activations = 0;  // the arena of all programs, workspaces included
  int64_t host = 0;         // the model, what the caller holds, libraries

  int64_t total() const { return parameters + gradients + moments + statistics + packed + feeds + activations + host; }
};

}  // namespace onnxtrain
