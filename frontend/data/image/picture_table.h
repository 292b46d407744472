// Tables with a column of paths to pictures, relative to the folder of the table.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/path_table.h"

namespace onnxtrain {

// Whether a regular file begins as a picture does.
bool IsPictureFile(const std::string& path);

// Opens the table with the column of paths as a column of pictures; the others are as `open` makes them.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenPictureTable(const std::string& path, const OpenTableFn& open,
                                                                const PathColumn& column,
                                                                const DatasetOptions& options);

}  // namespace onnxtrain
