// The order of samples: a pure function of (seed, epoch). Worker count, micro-batch and world size change nothing.
#pragma once

#include <cstdint>
#include <vector>

namespace onnxtrain {

// A permutation of 0…n-1 (Fisher–Yates driven by Philox4x32-10 with key (seed, epoch)); the identity without shuffle.
std::vector<int64_t> EpochOrder(int64_t n, uint64_t seed, int64_t epoch, bool shuffle);

}  // namespace onnxtrain
