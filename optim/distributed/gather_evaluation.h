// Merges the evaluations that several ranks have made of different samples.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "optim/distributed/data_parallel.h"
#include "optim/metrics.h"
#include "optim/session.h"

namespace onnxtrain {

// Adds losses, counts and metrics of further samples.
void AddEvaluation(const std::vector<Metric>& metrics, const Evaluation& part, Evaluation* total);

// Replaces *own and *samples with the sums over all ranks, the same on each. Returns the first error that a rank had.
absl::Status GatherEvaluation(DataParallel& ranks, const absl::Status& evaluated, const std::vector<Metric>& metrics,
                              Evaluation* own, int64_t* samples);

}  // namespace onnxtrain
