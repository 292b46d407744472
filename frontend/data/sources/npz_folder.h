// Folders with one .npz file per sample.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Whether all visible files of a folder are .npz files, and there is one.
bool IsNpzFolder(const std::string& path);

// Opens a folder: a sample per file, in the order of their names by bytes, a column per array. All files have the
// arrays of the first one, with the same types. Files are read when they are needed.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpzFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
