// Data sets made of data sets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"

namespace onnxtrain::cli {

// The samples `rows` of `source`, in that order.
std::shared_ptr<const Dataset> SubsetDataset(std::shared_ptr<const Dataset> source, std::vector<int64_t> rows);

struct ConstantColumn {
  std::string name;
  HostTensor sample;  // the same for every sample
};
// `source` with more columns behind its own.
std::shared_ptr<const Dataset> WithConstants(std::shared_ptr<const Dataset> source,
                                             std::vector<ConstantColumn> constants);

// Two data sets of the same columns: kept for training and carved off for evaluation.
struct Split {
  std::shared_ptr<const Dataset> train, eval;
};
// The evaluation part holds round(fraction · size) samples, at least 1 and not all: the last ones, or random ones that
// depend on `seed` alone. Both parts keep the source's order. `source` must have at least 2 samples.
Split SplitDataset(const std::shared_ptr<const Dataset>& source, double fraction, bool last, uint64_t seed);


// By what column `column` of the file `path`, which `source` was made of, says of each sample: numbers other than 0 and the
// names test, eval, valid, validation, val and dev are for evaluation, 0 and train for training; anything else is an
// error, and so is a part without samples.
absl::StatusOr<Split> SplitByColumn(const std::shared_ptr<const Dataset>& source, const std::string& path, Header header,
                                    const std::string& column);

}  // namespace onnxtrain::cli
