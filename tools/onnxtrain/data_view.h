// Data sets made of data sets.
#pragma once

#include <memory>
#include <string>
#include <vector>

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

}  // namespace onnxtrain::cli
