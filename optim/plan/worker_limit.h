// Workers that automatic choices come to at most.
#pragma once

namespace onnxtrain {

// Each holds batches in memory. Decoding pictures for a GPU takes most workers.
inline constexpr int kMostAutoWorkers = 16;

}  // namespace onnxtrain
