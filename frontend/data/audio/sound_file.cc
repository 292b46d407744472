#include "frontend/data/audio/sound_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {
namespace {

// Returns true if the file has the 11 bits that each frame of MPEG audio begins with, or cannot be read.
bool HasMpegSync(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return true;
  const std::istreambuf_iterator<char> begin(file), end;
  char last = 0;
  return std::any_of(begin, end, [&](char c) { return std::exchange(last, c) == '\xff' && (c & 0xe0) == 0xe0; });
}

}  // namespace

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
  // libsndfile takes any file named .mp3 for one, and libmpg123 then writes notes about its search for frames to
  // stderr.
  const bool by_name = !HasSuffix(path, {".mp3"}, false) || HasMpegSync(path);
  sound_.reset(by_name ? sf_open(path.c_str(), SFM_READ, &info_)
                       : sf_open_fd(open(path.c_str(), O_RDONLY | O_CLOEXEC), SFM_READ, &info_, SF_TRUE));
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
  if (sound_ == nullptr) {
    std::string_view reason = sf_strerror(nullptr);
    if (reason.starts_with("File does not exist")) reason = "no frames of MPEG audio";  // libsndfile's error of MP3
    return Invalid("no readable sound of its format (", reason.substr(0, reason.find_last_not_of('.') + 1), ")");
  }
  if (info_.frames > 0 && info_.channels >= 1 && info_.channels <= kMaxChannels && info_.samplerate >= 1)
    return absl::OkStatus();
  return Invalid(info_.frames, " frames of ", info_.channels, " channels at ", info_.samplerate, " Hz are refused");
}

}  // namespace onnxtrain
