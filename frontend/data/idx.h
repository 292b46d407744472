// The idx format of the MNIST files: two zero bytes, element type, rank, big-endian extents, elements. Plain or gzip.
// http://yann.lecun.com/exdb/mnist/
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"

namespace onnxtrain {

// Do the first bytes of the (perhaps packed) file look like idx?
bool IsIdx(const std::string& path);

// The whole array. Messages do not name the file.
absl::StatusOr<HostTensor> ReadIdx(const std::string& path, int64_t max_bytes);

// A file of images with the labels that lie beside it (the same name with "labels" and "idx1"), if there are any; or
// one of the two alone.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenIdx(const std::string& path, const DatasetOptions& options);

// A folder that has train-images… and train-labels… (or, with eval_split, t10k-…).
absl::StatusOr<std::shared_ptr<const Dataset>> OpenMnistFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
