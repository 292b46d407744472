// Views of data sets: subsets, constant columns, splits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"

namespace onnxtrain {

// The samples `rows` of `source`, in that order.
std::shared_ptr<const Dataset> SubsetDataset(std::shared_ptr<const Dataset> source, std::vector<int64_t> rows);

struct ConstantColumn {
  std::string name;
  HostTensor sample;  // the same for every sample
};
// `source` with constant columns appended.
std::shared_ptr<const Dataset> WithConstants(std::shared_ptr<const Dataset> source,
                                             std::vector<ConstantColumn> constants);

// Two data sets with the same columns.
struct Split {
  std::shared_ptr<const Dataset> train, eval;
};
struct SplitSpec {
  double fraction = 0;  // in (0, 1)
  bool last = false;    // the end of the data, not a random part
};
// "0.1" or "last:0.1"
absl::StatusOr<SplitSpec> ParseSplit(std::string_view text);

// The evaluation part holds round(fraction · size) samples, at least 1 and not all: the last ones, or random ones that
// depend on `seed` alone. Both parts keep the source's order. `source` must have at least 2 samples.
Split SplitDataset(const std::shared_ptr<const Dataset>& source, double fraction, bool last, uint64_t seed);

// Splits by a column of the file `path`, which `source` was opened from: numbers other than 0 and the names test, eval,
// valid, validation, val and dev select evaluation, 0 and train select training. Anything else is an error, and so is a
// part without samples.
absl::StatusOr<Split> SplitByColumn(const std::shared_ptr<const Dataset>& source, const std::string& path,
                                    Header header, const std::string& column);

}  // namespace onnxtrain
