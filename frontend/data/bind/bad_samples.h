// Finds samples that training cannot use, before a run begins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// The label sequences of a CTC loss, which are aligned with the time steps of a model output.
struct SequenceCheck {
  std::vector<int> columns;
  int64_t ignore_index = -100;
  int64_t blank = 0;                        // the class that separates labels
  std::function<int64_t(int64_t i)> steps;  // number of time steps of the output for sample i
};
// Checks the label sequence of sample i. Fails with kInvalidArgument if a label is the blank, or follows a label equal
// to `ignore_index` (padding may only be at the end), and with kOutOfRange if there are too few time steps: one is
// needed for each label and one for the blank between two equal labels. Errors name the row.
absl::Status CheckSequence(const Dataset& data, int64_t i, const SequenceCheck& check);

struct GoodSamples {
  std::shared_ptr<const Dataset> dataset;  // the good samples, in the order of the source
  std::vector<int64_t> rows;               // indices of the good samples in the source; empty if none is bad
  int64_t bad = 0;
  std::vector<std::string> reasons;  // messages about the first bad samples
};

// Reads every sample as a loader would, on `threads` threads, and drops those that cannot be read or that violate
// `specs`, `labels` or `sequences`. The result does not depend on the number of threads. Fails if every sample is bad,
// or if the columns do not fit the specs.
absl::StatusOr<GoodSamples> DropBadSamples(std::shared_ptr<const Dataset> source, const std::vector<FeedSpec>& specs,
                                           const std::vector<LabelCheck>& labels,
                                           const std::vector<SequenceCheck>& sequences, int threads);

struct BadSamples {
  int64_t count = 0;
  std::vector<std::string> reasons;  // messages about the first bad samples
  absl::Status invalid;              // error of the first sample whose labels are invalid at any output length
};

// Counts the samples that violate one of the checks, on `threads` threads.
BadSamples CountBadSamples(const Dataset& data, const std::vector<SequenceCheck>& checks, int threads);

// Returns "REASON; REASON", followed by "; …" if there are more bad samples than reasons.
std::string JoinReasons(const std::vector<std::string>& reasons, int64_t bad);

}  // namespace onnxtrain
