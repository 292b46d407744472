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
  // If not null, fields are not paths themselves, but PathFinder finds files of this kind by them.
  bool (*is_wanted)(const std::string& path) = nullptr;
};
// Returns the column of a CSV or TSV file whose first value is the path of a file for which is_wanted(path); else a
// column whose first values all name such files by the rules of PathFinder.
std::optional<PathColumn> FindPathColumn(const std::string& path, char separator, const DatasetOptions& options,
                                         bool (*is_wanted)(const std::string& path));
// Returns the key of JSON lines whose first value is such a path, or a text that names such a file.
std::optional<PathColumn> FindPathKey(const std::string& path, const DatasetOptions& options,
                                      bool (*is_wanted)(const std::string& path));

// Opens a table with the given options.
using OpenTableFn = std::function<absl::StatusOr<std::shared_ptr<const Dataset>>(const DatasetOptions&)>;

struct PathTable {
  std::shared_ptr<const Dataset> table;
  int column = 0;                  // index of the column of paths
  std::string folder;              // folder that paths are relative to
  std::vector<std::string> paths;  // path of each sample; "" if unreadable, the field itself if there is no such file
};
absl::StatusOr<PathTable> OpenPathTable(const std::string& path, const OpenTableFn& open, const PathColumn& column,
                                        DatasetOptions options);

}  // namespace onnxtrain
