// Tables with a column of paths to files, relative to the folder of the table.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

struct PathColumn {
  std::string name;
  bool has_header = false;
  // Where fields are no paths as they are, but name such files to a PathFinder; else null.
  bool (*is_wanted)(const std::string& path) = nullptr;
};
// Finds the column of a CSV or TSV file whose first value is the path of a file that `is_wanted`; else one whose first
// values all name such files to a PathFinder.
std::optional<PathColumn> FindPathColumn(const std::string& path, char separator, const DatasetOptions& options,
                                         bool (*is_wanted)(const std::string& path));
// Finds the key of JSON lines whose first value is such a path or, if it is text, names such a file to a PathFinder.
std::optional<PathColumn> FindPathKey(const std::string& path, const DatasetOptions& options,
                                      bool (*is_wanted)(const std::string& path));

// Opens the table with the given options.
using OpenTableFn = std::function<absl::StatusOr<std::shared_ptr<const Dataset>>(const DatasetOptions&)>;

struct PathTable {
  std::shared_ptr<const Dataset> table;
  int column = 0;                  // of the paths in it
  std::string folder;              // that they are relative to
  std::vector<std::string> paths;  // by sample; "" where it cannot be read, the field where there is no such file
};
absl::StatusOr<PathTable> OpenPathTable(const std::string& path, const OpenTableFn& open, const PathColumn& column,
                                        DatasetOptions options);

}  // namespace onnxtrain
