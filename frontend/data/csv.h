// Tables of text as data sets.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"

namespace onnxtrain {

// A .csv (comma) or .tsv (tab) file; see OpenDataset for what the columns become, csv_reader.h for the syntax.
//
// With Header::kAuto the first row is a header if none of its fields is a number or empty and all differ.
// Empty fields, and in columns of numbers NA, N/A, NaN, null, none and ?, are missing values. A column with a missing
// value, or with text that is not its label, gets a Column::problem that names the row and the column. What concerns
// the whole file fails: rows of unequal length, an open quote, text that is not UTF-8, no rows, two columns of one
// name, an unknown label column, a label that is not in class_names.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenCsv(const std::string& path, char separator,
                                                       const DatasetOptions& options);

}  // namespace onnxtrain
