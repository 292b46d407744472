// Labels that are the classes themselves, as indices into a list of classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// The classes as numbers; empty if one is no integer.
std::vector<int64_t> IntegerClasses(const std::vector<std::string>& classes);
// Is class i the number i?
bool AreIndices(const std::vector<std::string>& classes);

// Returns the distinct whole numbers of a label column with one value per sample, ascending, without `ignore_index`.
// Values that are no whole numbers are left out with `skip_bad`. Empty where they are not, and where there are more
// than 2^20.
std::vector<int64_t> FindDistinctLabels(const Dataset& data, int column, int64_t ignore_index, bool skip_bad);

// `source` with the numbers of a column replaced by their places in `classes`, which must be integers. Read fails on
// other numbers, with the row and the value. `ignore_index` stays.
std::shared_ptr<const Dataset> WithClassIndices(std::shared_ptr<const Dataset> source, int column,
                                                const std::vector<std::string>& classes, int64_t ignore_index);

}  // namespace onnxtrain
