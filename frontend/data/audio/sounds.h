// Reads sounds in the format of samples, and opens folders and tables of sound files as data sets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/media_files.h"
#include "frontend/data/sources/path_table.h"

namespace onnxtrain {

struct SoundFormat {
  int64_t rate = 0, channels = 0, frames = 0;
};

// Returns the format of samples that `options` yield for file `i`. Fails if the file is not a sound.
absl::StatusOr<SoundFormat> PlanSoundFormat(const MediaFiles& files, int64_t i, const AudioOptions& options);

// Reads the interleaved samples of a sound, at most those of the format. Properties that `options` leave open must
// equal those of the format, which were read from the file `like`.
absl::StatusOr<std::vector<float>> ReadSamples(const MediaFiles& files, int64_t i, const SoundFormat& format,
                                               const AudioOptions& options, const std::string& like);

// Reads a sound and writes it in that format to `out`: [channels, frames] in [-1, 1].
absl::Status ReadSound(const MediaFiles& files, int64_t i, const SoundFormat& format, const AudioOptions& options,
                       const std::string& like, float* out);

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
