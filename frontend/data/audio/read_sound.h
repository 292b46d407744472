// Reads sounds in the format of samples: their rate, channels and length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/media_files.h"

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

}  // namespace onnxtrain
