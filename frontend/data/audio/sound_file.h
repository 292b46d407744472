// Reads files of sound: WAV, FLAC, Ogg and AIFF.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/audio/audio_options.h"

namespace onnxtrain {

// Does the name end in .wav, .flac, .ogg, .aiff or .aif?
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

}  // namespace onnxtrain
