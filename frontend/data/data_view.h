// Views of data sets: subsets, constant columns.
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

}  // namespace onnxtrain
