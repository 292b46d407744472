// Tables with a column of paths to pictures, relative to the folder of the table.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"

namespace onnxtrain {

struct PathColumn {
  std::string name;
  bool has_header = false;
};
// Finds the column of a CSV or TSV file whose first value is the path of a file that is a picture.
std::optional<PathColumn> FindPathColumn(const std::string& path, char separator, Header header);

// Opens the table with the column of paths as a column of pictures; the others are as OpenCsv makes them.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenPictureTable(const std::string& path, char separator,
                                                                const PathColumn& column, DatasetOptions options);

}  // namespace onnxtrain
