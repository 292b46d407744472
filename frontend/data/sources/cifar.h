// The binary version of CIFAR-10 and CIFAR-100: rows of one label byte (CIFAR-100: coarse and fine) and 3 × 32 × 32
// bytes of red, green and blue. https://www.cs.toronto.edu/~kriz/cifar.html
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Whether a folder has data_batch_1.bin (CIFAR-10), or train.bin beside fine_label_names.txt (CIFAR-100), and among its
// files those for evaluation.
bool IsCifarFolder(const std::string& path);
bool HasCifarEvalFiles(const std::string& path);

// Opens the training files, or those for evaluation with eval_split, in memory: columns "image" [3,32,32], "label" and,
// for CIFAR-100, "coarse_label", with the names of the classes where their file is there.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenCifarFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
