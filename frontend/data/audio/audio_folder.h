// Folders of sound files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Whether a folder, or a folder in it, holds .wav, .flac, .ogg or .aiff files.
bool IsAudioFolder(const std::string& path);

// Opens a folder with a folder per class, or with files alone. Columns: "audio", as MakeSoundDataset describes it; and
// "label", the folder's place among the names sorted by bytes, or in DatasetOptions::folder_classes.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
