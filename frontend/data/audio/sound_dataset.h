// A data set with sounds in files of their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

struct SoundFiles {
  std::string column, root;        // the name of the column; the folder that the names are relative to
  std::vector<std::string> names;  // by sample
};

// Makes a column of f32 between -1 and 1, [frames] or, of several channels, [channels, frames], then the columns of
// `table` (may be null) but `leave_out` (-1: none). Files are read when they are needed. What options.audio leaves open
// is that of the first file that can be read; any other is an error that names the file and both numbers.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeSoundDataset(SoundFiles files, std::shared_ptr<const Dataset> table,
                                                                int leave_out, const DatasetOptions& options);

}  // namespace onnxtrain
