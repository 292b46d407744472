// Tar archives as data sets.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Opens one tar archive or several (see TarIndex). Members .npy are arrays of one type, .cls labels as whole numbers,
// .txt texts, .jpg, .png, .webp, .gif, .bmp and .tif pictures as DatasetOptions::images has them, and .json objects
// whose keys are columns as in a file of JSON lines; the columns are named after the extensions, or the keys. Arrays
// are read when they are needed; the others are held in memory.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenTar(const std::string& pattern, const DatasetOptions& options);

}  // namespace onnxtrain
