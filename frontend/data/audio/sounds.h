// Sound files as samples, and folders and tables of sound files as data sets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/path_table.h"

namespace onnxtrain {

// Returns whether the name ends in .wav, .flac, .ogg, .aiff or .aif.
bool IsSoundName(const std::string& name);

struct SoundFormat {
  int64_t rate = 0, channels = 0, frames = 0;
};
// Returns the format of samples that `options` yield for a file. Fails if the file is not a sound.
absl::StatusOr<SoundFormat> PlanSoundFormat(const std::string& path, const AudioOptions& options);

// Reads a sound and writes it in that format to `out`: [channels, frames] in [-1, 1]. Properties that `options` leave
// open must equal those of the format, which were read from the file `like`.
absl::Status ReadSound(const std::string& path, const SoundFormat& format, const AudioOptions& options,
                       const std::string& like, float* out);

// Returns true for a regular file with the suffix of a sound.
bool IsSoundPath(const std::string& path);

// Opens a table with a column of paths, relative to the table's folder, as a column of sounds, which comes first;
// `open` opens the other columns.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioTable(const std::string& path, const OpenTableFn& open,
                                                              const PathColumn& column, const DatasetOptions& options);

// Returns true if a folder or one of its sub-folders holds .wav, .flac, .ogg or .aiff files.
bool IsAudioFolder(const std::string& path);

// Opens a folder of sounds, or of sub-folders per class. Columns: "audio", f32 [frames] or [channels, frames]; and
// "label", the index of the sub-folder in DatasetOptions::folder_classes, else in bytewise order.
absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioFolder(const std::string& path, const DatasetOptions& options);

}  // namespace onnxtrain
