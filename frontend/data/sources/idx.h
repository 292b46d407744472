// The idx format of the MNIST files: two zero bytes, element type, rank, big-endian extents, elements. Plain or gzip.
// http://yann.lecun.com/exdb/mnist/
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Whether the first bytes of the file, which may be gzip, are those of idx.
bool IsIdx(const std::string& path);

// Reads the whole array. Messages do not name the file.
absl::StatusOr<HostTensor> ReadIdx(const std::string& path, int64_t max_bytes);

// Opens a file of images with the labels file in the same folder (the same name with "labels" and "idx1"), if there is
// one; or a single file of either kind.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenIdx(const std::string& path, const DatasetOptions& options);

// Whether a folder has files named like MNIST's, and among them those for evaluation.
bool IsMnistFolder(const std::string& path);
bool HasMnistEvalFiles(const std::string& path);

// Opens a folder with train-images… and train-labels…, or t10k-… with eval_split.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenMnistFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
