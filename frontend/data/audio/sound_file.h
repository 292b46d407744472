// Opens sound files with libsndfile, on disk or in memory.
#pragma once

#include <sndfile.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/media_files.h"

namespace onnxtrain {

// Returns whether the name has the suffix of a sound: .wav, .flac, .ogg, .oga, .opus, .mp3, .aiff or .aif.
bool IsSoundName(const std::string& name);

// Returns true for the bytes of a sound file.
bool IsSound(const std::string& bytes);

// An open sound. Not thread-safe.
class SoundFile {
 public:
  // Fails if the file is no sound, or has an impossible format. The message names the file.
  static absl::StatusOr<std::unique_ptr<SoundFile>> Open(const MediaFiles& files, int64_t i);

  const SF_INFO& info() const { return info_; }
  // Returns false for files that do not tell their length: FLAC as written to pipes.
  bool KnowsLength() const { return info_.frames < SF_COUNT_MAX; }
  // Reads at most `frames` frames of interleaved samples; returns how many.
  int64_t Read(int64_t frames, float* samples) { return sf_readf_float(sound_.get(), samples, frames); }

 private:
  friend bool IsSound(const std::string& bytes);
  SoundFile() = default;

  absl::Status OpenPath(const std::string& path);
  absl::Status OpenBytes(std::vector<uint8_t> bytes);
  absl::Status CheckInfo() const;

  struct Close {
    void operator()(SNDFILE* file) const { sf_close(file); }
  };
  // The bytes that libsndfile reads, and its position among them.
  struct Memory {
    std::vector<uint8_t> bytes;
    sf_count_t position = 0;
  };

  std::unique_ptr<Memory> memory_;  // outlives sound_
  SF_INFO info_ = {};
  std::unique_ptr<SNDFILE, Close> sound_;
};

}  // namespace onnxtrain
