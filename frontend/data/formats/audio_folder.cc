#include "frontend/data/formats/audio_folder.h"

#include <sndfile.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/file.h"
#include "frontend/data/folder.h"
#include "frontend/data/source.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxChannels = 64;

bool IsAudio(const std::string& name) {
  static const auto* const kSuffixes = new std::vector<std::string>{".wav", ".flac", ".ogg", ".aiff", ".aif"};
  return HasSuffix(name, *kSuffixes, false);
}

struct Close {
  void operator()(SNDFILE* file) const { sf_close(file); }
};
using Sound = std::unique_ptr<SNDFILE, Close>;

absl::StatusOr<Sound> OpenSound(const std::string& path, SF_INFO* info) {
  RETURN_IF_ERROR(RegularFileSize(path).status());
  *info = {};
  Sound sound(sf_open(path.c_str(), SFM_READ, info));
  if (sound == nullptr) return Invalid(path, ": ", sf_strerror(nullptr));
  if (info->frames <= 0 || info->channels < 1 || info->channels > kMaxChannels)
    return Invalid(path, ": ", info->frames, " frames of ", info->channels, " channels are refused");
  return sound;
}

struct SoundFile {
  std::string name;  // within the folder
  int64_t label = 0;
};

class AudioFolder : public Dataset {
 public:
  AudioFolder(std::string folder, std::vector<SoundFile> files, const SF_INFO& info, std::vector<Column> columns)
      : folder_(std::move(folder)), files_(std::move(files)), info_(info), columns_(std::move(columns)) {}

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return (fs::path(folder_) / files_[i].name).string(); }

  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    CHECK(i >= 0 && i < size() && c >= 0 && c < static_cast<int>(columns_.size()));
    CHECK_EQ(out.size(), columns_[c].sample.bytes());
    if (c == 0) return ReadAudio(Describe(i), reinterpret_cast<float*>(out.data()));
    std::memcpy(out.data(), &files_[i].label, sizeof(int64_t));
    return absl::OkStatus();
  }

 private:
  absl::Status ReadAudio(const std::string& path, float* out) const {
    SF_INFO info;
    ASSIGN_OR_RETURN(const Sound sound, OpenSound(path, &info));
    const auto check = [&](const char* what, int64_t is, int64_t want) {
      return is == want ? absl::OkStatus()
                        : Invalid(path, ": ", what, " ", is, ", but ", want, " in ", files_[0].name,
                                  " (convert the files to one rate and length)");
    };
    RETURN_IF_ERROR(check("sample rate", info.samplerate, info_.samplerate));
    RETURN_IF_ERROR(check("channels:", info.channels, info_.channels));
    RETURN_IF_ERROR(check("frames:", info.frames, info_.frames));
    std::vector<float> interleaved(info.frames * info.channels);
    if (sf_readf_float(sound.get(), interleaved.data(), info.frames) != info.frames)
      return Invalid(path, ": the file is truncated or corrupt");
    for (int channel = 0; channel < info.channels; ++channel) {
      for (int64_t t = 0; t < info.frames; ++t) *out++ = interleaved[t * info.channels + channel];
    }
    return absl::OkStatus();
  }

  std::string folder_;
  std::vector<SoundFile> files_;
  SF_INFO info_;  // of all files
  std::vector<Column> columns_;
};

// Lists the sound files of a folder, or of the folders in it.
struct Listing {
  std::vector<std::string> classes;  // empty: the files have none
  std::vector<SoundFile> files;
};

absl::StatusOr<Listing> ListSounds(const std::string& path) {
  Listing listing;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path));
  for (const std::string& name : names) {
    std::error_code ignored;
    const fs::path folder = fs::path(path) / name;
    if (IsAudio(name)) listing.files.push_back({name});
    if (!fs::is_directory(folder, ignored)) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> inside, ListFolder(folder.string()));
    const size_t before = listing.files.size();
    for (const std::string& file : inside) {
      if (IsAudio(file)) listing.files.push_back({StrCat(name, "/", file), std::ssize(listing.classes)});
    }
    if (listing.files.size() > before) listing.classes.push_back(name);
  }
  const bool mixed = !listing.classes.empty() && std::ranges::any_of(listing.files, [](const SoundFile& f) {
    return f.name.find('/') == std::string::npos;
  });
  if (mixed) return Invalid(path, ": has sound files beside the folders of classes");
  if (listing.files.empty()) return Invalid(path, ": the folder holds no sound files");
  return listing;
}

// Numbers the classes as `names` has them.
absl::Status RenumberClasses(const std::string& path, const std::vector<std::string>& names, Listing* listing) {
  if (names.empty() || listing->classes.empty()) return absl::OkStatus();
  for (SoundFile& file : listing->files) {
    const std::string& name = listing->classes[file.label];
    file.label = std::ranges::find(names, name) - names.begin();
    if (file.label == std::ssize(names))
      return Invalid(path, ": '", name, "' is not among the ", names.size(),
                     " classes (`class_map` FILE gives others, and their order)");
  }
  listing->classes = names;
  return absl::OkStatus();
}

}  // namespace

bool IsAudioFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && ListSounds(path).ok();
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioFolder(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(Listing listing, ListSounds(path));
  RETURN_IF_ERROR(RenumberClasses(path, options.folder_classes, &listing));
  SF_INFO info;
  const std::string first = (fs::path(path) / listing.files[0].name).string();
  RETURN_IF_ERROR(OpenSound(first, &info).status());
  RETURN_IF_ERROR(
      Annotate(CheckMemory(info.frames * info.channels * int64_t{sizeof(float)}, options.max_bytes), first + ": "));
  Shape shape = {info.frames};
  if (info.channels > 1) shape.insert(shape.begin(), info.channels);
  std::vector<Column> columns = {{.name = "audio", .sample = {DType::kFloat32, shape}}};
  if (!listing.classes.empty())
    columns.push_back({.name = "label", .sample = {DType::kInt64, {}}, .classes = listing.classes});
  return std::make_shared<AudioFolder>(path, std::move(listing.files), info, std::move(columns));
}

}  // namespace onnxtrain
