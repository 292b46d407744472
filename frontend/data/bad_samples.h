// Finds the samples that a run cannot use, before it begins.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"
#include "frontend/data/loader.h"

namespace onnxtrain {

struct GoodSamples {
  std::shared_ptr<const Dataset> dataset;  // without the bad samples, in the order of the source
  std::vector<int64_t> rows;               // their places in the source; empty where none is bad
  int64_t bad = 0;
  std::vector<std::string> reasons;  // of the first bad samples
};

// Reads every sample as a loader would, on `threads` threads, and leaves out those that cannot be read or whose values
// `specs` or `labels` do not allow. The result does not depend on the number of threads. Fails where every sample is
// bad, and where the columns do not fit the specs.
absl::StatusOr<GoodSamples> DropBadSamples(std::shared_ptr<const Dataset> source, const std::vector<FeedSpec>& specs,
                                           const std::vector<LabelCheck>& labels, int threads);

}  // namespace onnxtrain
