#include "frontend/data/audio/sound_file.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "frontend/base/status.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {

bool IsSoundName(const std::string& name) {
  static const auto* const kSuffixes =
      new std::vector<std::string>{".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif"};
  return HasSuffix(name, *kSuffixes, false);
}

bool IsSound(const std::string& bytes) {
  SoundFile file;
  return file.OpenBytes({bytes.begin(), bytes.end()}).ok();
}

absl::StatusOr<std::unique_ptr<SoundFile>> SoundFile::Open(const MediaFiles& files, int64_t i) {
  std::unique_ptr<SoundFile> file(new SoundFile);
  const std::string path = files.Path(i);
  absl::Status opened;
  if (!path.empty()) {
    RETURN_IF_ERROR(RegularFileSize(path).status());
    opened = file->OpenPath(path);
  } else {
    std::vector<uint8_t> bytes;
    opened = files.Read(i, &bytes);
    if (opened.ok()) opened = file->OpenBytes(std::move(bytes));
  }
  RETURN_IF_ERROR(Annotate(opened, files.Describe(i) + ": "));
  return file;
}

absl::Status SoundFile::OpenPath(const std::string& path) {
  sound_.reset(sf_open(path.c_str(), SFM_READ, &info_));
  return CheckInfo();
}

absl::Status SoundFile::OpenBytes(std::vector<uint8_t> bytes) {
  memory_ = std::make_unique<Memory>(Memory{.bytes = std::move(bytes)});
  SF_VIRTUAL_IO io = {};
  io.get_filelen = [](void* user) { return static_cast<sf_count_t>(static_cast<Memory*>(user)->bytes.size()); };
  io.tell = [](void* user) { return static_cast<Memory*>(user)->position; };
  io.seek = [](sf_count_t offset, int whence, void* user) {
    auto* memory = static_cast<Memory*>(user);
    const auto size = static_cast<sf_count_t>(memory->bytes.size());
    const sf_count_t base = whence == SEEK_CUR ? memory->position : whence == SEEK_END ? size : 0;
    if (offset >= -base && offset <= size - base) memory->position = base + offset;
    return memory->position;
  };
  io.read = [](void* to, sf_count_t count, void* user) {
    auto* memory = static_cast<Memory*>(user);
    const sf_count_t n = std::clamp<sf_count_t>(std::ssize(memory->bytes) - memory->position, 0, count);
    std::memcpy(to, memory->bytes.data() + memory->position, n);
    memory->position += n;
    return n;
  };
  sound_.reset(sf_open_virtual(&io, SFM_READ, &info_, memory_.get()));
  return CheckInfo();
}

absl::Status SoundFile::CheckInfo() const {
  constexpr int kMaxChannels = 64;
  if (sound_ == nullptr) return Invalid(sf_strerror(nullptr));
  if (info_.frames > 0 && info_.channels >= 1 && info_.channels <= kMaxChannels && info_.samplerate >= 1)
    return absl::OkStatus();
  return Invalid(info_.frames, " frames of ", info_.channels, " channels at ", info_.samplerate, " Hz are refused");
}

}  // namespace onnxtrain
