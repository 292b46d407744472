// Folders of .npy files, an array of all samples in each: x.npy and y.npy, or x_train.npy, y_train.npy, x_test.npy ….
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Whether the folder holds .npy files only, hidden ones apart.
bool IsNpyFolder(const std::string& path);
// Opens the arrays as the columns of one data set, named after the files; of the parts of training and evaluation
// (npz_parts.h) one. Fails, naming the file, on arrays of other lengths than the first.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpyFolder(const std::string& path, const DatasetOptions& options);
// Are there such parts?
bool HasEvalNpyFiles(const std::string& path);

}  // namespace onnxtrain
