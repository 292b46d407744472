// Data sets of arrays that stay in their file: a sample is read when it is needed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

// Arrays of up to this size are rather held in memory.
inline constexpr int64_t kHeldInMemory = int64_t{64} << 20;

struct FileArray {
  std::string name;
  Type type;  // [n, sample…], row-major
  int64_t offset = 0;
  bool big_endian = false;
  std::optional<HostTensor> held = {};    // in memory instead
  std::vector<std::string> classes = {};  // as Column has them
  std::string problem = {};
};

// Makes a data set of arrays of `file`, one column each, with the same leading extent. Files are read and not mapped,
// so that a file that shrinks is an error and not a signal. Messages do not name the file.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeFileDataset(const std::string& path,
                                                               std::shared_ptr<const RandomFile> file,
                                                               std::vector<FileArray> arrays);

// Archives that hold training and evaluation samples: x_train and x_test as Keras names them, or train_images and
// val_images as MedMNIST does.

// Which arrays make one part, and the names of their columns: {"x_train": "x"}.
using NpzPart = std::map<std::string, std::string>;

// The arrays to train on, or with `eval_split` those to evaluate on (of validation rather than of test). Nothing where
// the names do not divide into such parts with equal columns.
std::optional<NpzPart> FindNpzPart(const std::vector<std::string>& arrays, bool eval_split);

}  // namespace onnxtrain
