// Tables with a column of paths to sounds, relative to the folder of the table.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/path_table.h"

namespace onnxtrain {

// Whether it is a regular file with the suffix of a sound.
bool IsSoundPath(const std::string& path);

// Opens the table with the column of paths as a column of sounds, the first one; the others are as `open` makes them.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioTable(const std::string& path, const OpenTableFn& open,
                                                              const PathColumn& column, const DatasetOptions& options);

}  // namespace onnxtrain
