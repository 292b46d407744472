// Data sets whose samples lie in memory: what npz, idx and CSV files become.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"

namespace onnxtrain {

struct NamedTensor {
  std::string name;
  HostTensor tensor;  // [n, sample…]
  std::vector<std::string> classes = {};
  std::string problem = {};
};

// The column that an array [n, sample…] makes. Fails on a scalar and on n = 0.
absl::StatusOr<Column> ColumnOf(std::string name, const Type& type);

// Fails, naming the arrays, unless all have the same leading extent. `describe` as Dataset::Describe.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeMemoryDataset(std::vector<NamedTensor> columns,
                                                                 std::function<std::string(int64_t)> describe);

}  // namespace onnxtrain
