// Folders of sound files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/path_table.h"

namespace onnxtrain {

// Tables with a column of paths to sounds, relative to the folder of the table.

// Whether it is a regular file with the suffix of a sound.
bool IsSoundPath(const std::string& path);

// Opens the table with the column of paths as a column of sounds, the first one; the others are as `open` makes them.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioTable(const std::string& path, const OpenTableFn& open,
                                                              const PathColumn& column, const DatasetOptions& options);

// Whether a folder, or a folder in it, holds .wav, .flac, .ogg or .aiff files.
bool IsAudioFolder(const std::string& path);

// Opens a folder with a folder per class, or with files alone. Columns: "audio", as MakeSoundDataset describes it; and
// "label", the folder's place among the names sorted by bytes, or in DatasetOptions::folder_classes.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
