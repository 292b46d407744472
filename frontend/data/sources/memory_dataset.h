// Data sets that hold their samples in memory, as npz, idx and CSV files do.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

struct NamedTensor {
  std::string name;
  HostTensor tensor;  // [n, sample…]
  std::vector<std::string> classes = {};
  std::string problem = {};
  std::map<int64_t, std::string> unreadable = {};  // why Read fails for single samples
  std::vector<std::string> texts = {};             // of a text column, by sample; `tensor` is [n] then
  std::string note = {};                           // for Dataset::notes
};

// Describes an array [n, sample…] as a column. Fails on a scalar and on n = 0.
absl::StatusOr<Column> MakeColumn(std::string name, const Type& type);

// Makes a data set of tensors with the same leading extent; otherwise fails, naming them. `describe` implements
// Dataset::Describe.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeMemoryDataset(std::vector<NamedTensor> columns,
                                                                 std::function<std::string(int64_t)> describe);

}  // namespace onnxtrain
