// Finds the samples that a run cannot use, before it begins.
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

// Labels that connectionist temporal classification aligns with the steps of an output.
struct SequenceCheck {
  std::vector<int> columns;
  int64_t ignore_index = -100;
  int64_t blank = 0;                        // the class that separates labels and is none
  std::function<int64_t(int64_t i)> steps;  // of the output for sample i
};
// Checks that no label of a sample is the blank or follows one of `ignore_index`, which only pads: else the error is
// kInvalidArgument. Checks that the steps suffice for the labels: each takes one, and so does the blank that has to
// separate two equal ones: else the error is kOutOfRange. Errors name the row.
absl::Status CheckSequence(const Dataset& data, int64_t i, const SequenceCheck& check);

struct GoodSamples {
  std::shared_ptr<const Dataset> dataset;  // without the bad samples, in the order of the source
  std::vector<int64_t> rows;               // their places in the source; empty where none is bad
  int64_t bad = 0;
  std::vector<std::string> reasons;  // of the first bad samples
};

// Reads every sample as a loader would, on `threads` threads, and leaves out those that cannot be read or whose values
// `specs`, `labels` or `sequences` do not allow. The result does not depend on the number of threads. Fails where every
// sample is bad, and where the columns do not fit the specs.
absl::StatusOr<GoodSamples> DropBadSamples(std::shared_ptr<const Dataset> source, const std::vector<FeedSpec>& specs,
                                           const std::vector<LabelCheck>& labels,
                                           const std::vector<SequenceCheck>& sequences, int threads);

struct BadSamples {
  int64_t count = 0;
  std::vector<std::string> reasons;  // of the first ones
  absl::Status invalid;              // of the first one whose labels mean nothing
};

// Counts the samples that the checks do not allow, on `threads` threads.
BadSamples CountBadSamples(const Dataset& data, const std::vector<SequenceCheck>& checks, int threads);

// Returns "REASON; REASON; …", the last of it where there are more than these.
std::string JoinReasons(const std::vector<std::string>& reasons, int64_t bad);

}  // namespace onnxtrain
