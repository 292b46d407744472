// Folders of sound files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/dataset.h"

namespace onnxtrain {

// Whether a folder, or a folder in it, holds .wav, .flac, .ogg or .aiff files.
bool IsAudioFolder(const std::string& path);

// Opens a folder with a folder per class, or with files alone. Columns: "audio", f32 between -1 and 1, [frames] or, of
// several channels, [channels, frames]; and "label", the folder's place among the names sorted by bytes, or in
// DatasetOptions::folder_classes. Files are read when they are needed. All have the sample rate, channels and frames of
// the first one; any other is an error that names the file and both numbers.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
