// Opens Parquet and Arrow files as data sets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Opens a .parquet, .arrow or .feather file, a range of shards ("train-{00000..00004}-of-00005.parquet"), or a folder
// that IsArrowFolder recognizes. Numbers, also dates, times and decimals, keep their type; lists of numbers of one
// shape are tensors; fields of structs are columns "a.b"; strings follow the rules of CSV fields for labels, categories
// and missing values; pictures are binary values or structs {bytes, path}. Other lists, structs and maps are read as
// JSON texts (DatasetOptions::text). Columns are decoded at the first access and kept in memory or, if large, in an
// unnamed file.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenArrow(const std::string& path, const DatasetOptions& options);

// Returns true if a folder, its subfolder "data" or a folder of one configuration contains such files.
bool IsArrowFolder(const std::string& path);

// Returns true if a folder contains files for evaluation: test, validation ….
bool HasArrowEvalFiles(const std::string& path);

// Returns the files to open, sorted by name; with `eval_split`, those of the first evaluation part in the folder. Parts
// are named as on the Hub: "train-00000-of-00002.parquet", "train/0000.parquet", "test.arrow"; files without a part in
// their names are for training. Fails if shards are missing or the folder contains several configurations.
absl::StatusOr<std::vector<std::string>> FindArrowFiles(const std::string& path, bool eval_split);

}  // namespace onnxtrain
