// How many evaluation samples the report of a run predicts, and how many of them at once.
#pragma once

#include <cstdint>
#include <vector>

#include "frontend/data/load/loader.h"
#include "optim/step/loss.h"

namespace onnxtrain {

struct ReportedSamples {
  int64_t most = 0;   // of which predictions take bounded time and memory; 0: none
  int64_t batch = 0;  // samples of one prediction; 0: none
};

// At most `most` samples, in batches of at most `micro_batch`. `fixed_batch`: as in SessionOptions.
ReportedSamples PlanReportedSamples(const LossChoice& loss, const std::vector<FeedSpec>& specs, int64_t most,
                                    int64_t micro_batch, int64_t fixed_batch);

}  // namespace onnxtrain
