// Folders of sound files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/audio/audio_options.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/path_table.h"

namespace onnxtrain {

// Returns whether the name ends in .wav, .flac, .ogg, .aiff or .aif.
bool IsSoundName(const std::string& name);

struct SoundFormat {
  int64_t rate = 0, channels = 0, frames = 0;
};
// The format of samples that are made of a file as `options` say. Fails on a file that is no sound.
absl::StatusOr<SoundFormat> PlanSoundFormat(const std::string& path, const AudioOptions& options);

// Writes a sound in that format to `out`: [channels, frames] between -1 and 1. What `options` leave open must be as
// the format has it, which is that of the file `like`.
absl::Status ReadSound(const std::string& path, const SoundFormat& format, const AudioOptions& options,
                       const std::string& like, float* out);

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
