// Folders and tables of sound files as data sets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/media_files.h"
#include "frontend/data/sources/path_table.h"

namespace onnxtrain {

struct SoundColumn {
  std::string name;
  std::shared_ptr<const MediaFiles> files;
};

// Makes a data set of a sound column, f32 in [-1, 1] of shape [frames] or, with several channels, [channels, frames],
// and the columns of `table` (may be null) except `leave_out` (-1: none). Files are read on demand. Properties that
// options.audio leaves open are those of the first readable file; files that differ are errors that name both numbers.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeSoundDataset(SoundColumn sounds,
                                                                std::shared_ptr<const Dataset> table, int leave_out,
                                                                const DatasetOptions& options);

// Returns true for a regular file with the suffix of a sound.
bool IsSoundPath(const std::string& path);

// Opens a table with a column of paths, relative to the table's folder, as a column of sounds, which comes first;
// `open` opens the other columns.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioTable(const std::string& path, const OpenTableFn& open,
                                                              const PathColumn& column, const DatasetOptions& options);

// Returns true if a folder or one of its sub-folders holds sound files.
bool IsAudioFolder(const std::string& path);

// Opens a folder of sounds, or of sub-folders per class. Columns: "audio", f32 [frames] or [channels, frames]; and
// "label", the index of the sub-folder in DatasetOptions::folder_classes, else in bytewise order.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
