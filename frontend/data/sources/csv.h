// CSV and TSV files as data sets.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

// Opens a .csv (comma) or .tsv (tab) file. OpenDataset describes the columns, csv_reader.h the syntax.
//
// Header::kAuto takes the first row for a header as ClassifyFirstRow says. Columns of one name become a, a.1, …; rows
// without values and empty fields behind the last column are left out. Empty fields, and in numeric columns those that
// IsMissingValue names, are missing values. Numbers may be written 1,234.5, 12% or $5; columns of true and false, or
// yes and no, are numbers unless they are categories; notes tell which. A column with a missing value, or with text
// that is neither its label nor a category, gets a Column::problem that names the row and the column, unless
// DatasetOptions says otherwise. Errors of the whole file fail: rows of unequal length, an open quote, text that is
// not UTF-8, no rows, an unknown label column, a label that is not in class_names.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenCsv(const std::string& path, char separator,
                                                       const DatasetOptions& options);

// The same from a stream. Messages name `name`.
absl::StatusOr<std::shared_ptr<const Dataset>> ReadCsv(const std::string& name, const ReadFn& read, char separator,
                                                       const DatasetOptions& options);

}  // namespace onnxtrain
