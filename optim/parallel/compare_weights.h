// Finds ranks whose weights differ, which nothing else would show: a bit that flipped, a library that computes
// otherwise.
#pragma once

#include "absl/status/status.h"
#include "optim/parallel/data_parallel.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Compares checksums of weights, running statistics and averages after an update. Called by all ranks; fails alike on
// all of them, naming the ranks that differ from rank 0.
absl::Status CompareWeights(Session& session, DataParallel& ranks);

}  // namespace onnxtrain
