// Merges the evaluations of several ranks, and compares their weights.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "optim/loop/metrics.h"
#include "optim/parallel/data_parallel.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Merges the evaluations that several ranks have made of different samples.

// Adds losses, counts and metrics of further samples.
void AddEvaluation(const std::vector<Metric>& metrics, const Evaluation& part, Evaluation* total);

// Adds the evaluations of all ranks, in their order, to *total, and their samples to *samples, the same on each.
// Returns the first error that a rank had.
absl::Status GatherEvaluation(DataParallel& ranks, const absl::Status& evaluated, const std::vector<Metric>& metrics,
                              const Evaluation& own, int64_t own_samples, Evaluation* total, int64_t* samples);

// Finds ranks whose weights differ, which nothing else would show: a bit that flipped, a library that computes
// otherwise.

// Compares checksums of weights, running statistics and averages after an update. Called by all ranks; fails alike on
// all of them, naming the ranks that differ from rank 0.
absl::Status CompareWeights(Session& session, DataParallel& ranks);

}  // namespace onnxtrain
