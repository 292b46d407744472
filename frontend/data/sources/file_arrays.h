// Data sets of arrays that stay in their file: samples are read on demand.
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

// Arrays up to this size are read into memory instead.
inline constexpr int64_t kHeldInMemory = int64_t{64} << 20;

struct FileArray {
  std::string name;
  Type type;  // [n, sample…], row-major
  int64_t offset = 0;
  bool big_endian = false;
  std::optional<HostTensor> held = {};    // the array itself, if it is in memory
  std::vector<std::string> classes = {};  // see Column
  std::string problem = {};
};

// Makes a data set of arrays of `file`, one column each, with the same leading extent. Files are read instead of
// mapped, so that truncation is an error and not a signal. Messages do not name the file.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeFileDataset(const std::string& path,
                                                               std::shared_ptr<const RandomFile> file,
                                                               std::vector<FileArray> arrays);

// The arrays of one part of an archive and the names of their columns: {"x_train": "x"}.
using NpzPart = std::map<std::string, std::string>;

// Returns the arrays to train on, or with `eval_split` those to evaluate on (validation rather than test), for archives
// like Keras's (x_train, x_test) or MedMNIST's (train_images, val_images). nullopt if the names do not divide into
// parts with equal columns.
std::optional<NpzPart> FindNpzPart(const std::vector<std::string>& arrays, bool eval_split);

}  // namespace onnxtrain
