#include "frontend/data/audio/sound_dataset.h"

#include <filesystem>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/audio/sound_file.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

std::string PathOf(const SoundFiles& files, int64_t i) { return (fs::path(files.root) / files.names[i]).string(); }

// The first file that can be read, and the format that samples have after it.
struct Reference {
  int64_t file = 0;
  SoundFormat format;
};
absl::StatusOr<Reference> FindReference(const SoundFiles& files, const AudioOptions& options) {
  absl::Status first;
  for (int64_t i = 0; i < std::ssize(files.names); ++i) {
    const auto format = PlanSoundFormat(PathOf(files, i), options);
    if (format.ok()) return Reference{i, *format};
    if (first.ok()) first = format.status();
  }
  return first;
}

class SoundDataset : public Dataset {
 public:
  SoundDataset(SoundFiles files, const Reference& reference, const AudioOptions& options)
      : files_(std::move(files)), reference_(reference), options_(options) {
    const SoundFormat& format = reference.format;
    Shape shape = {format.frames};
    if (format.channels > 1) shape.insert(shape.begin(), format.channels);
    columns_ = {{.name = files_.column, .sample = {DType::kFloat32, shape}, .sample_rate = format.rate}};
  }

  int64_t size() const override { return std::ssize(files_.names); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return files_.names[i]; }
  std::string Describe(int64_t i) const override { return PathOf(files_, i); }
  std::vector<std::string> notes() const override {
    if (options_.sample_rate == 0 && options_.frames == 0 && options_.seconds == 0) return {};
    const SoundFormat& f = reference_.format;
    return {StrCat("sounds: ", f.rate, " Hz, ", f.channels, f.channels == 1 ? " channel, " : " channels, ", f.frames,
                   " frames; others are resampled, averaged, cut or padded (`sample_rate`, `audio_length`)")};
  }

  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    CHECK(i >= 0 && i < size() && c == 0);
    CHECK_EQ(out.size(), columns_[0].sample.bytes());
    return ReadSound(Describe(i), reference_.format, options_, files_.names[reference_.file],
                     reinterpret_cast<float*>(out.data()));
  }

 private:
  SoundFiles files_;
  Reference reference_;
  AudioOptions options_;
  std::vector<Column> columns_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> MakeSoundDataset(SoundFiles files, std::shared_ptr<const Dataset> table,
                                                                int leave_out, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const Reference reference, FindReference(files, options.audio));
  const Type sample{DType::kFloat32, {reference.format.channels, reference.format.frames}};
  absl::Status fits = CheckShape(sample.shape);
  if (fits.ok()) fits = CheckMemory(static_cast<int64_t>(sample.bytes()), options.max_bytes);
  RETURN_IF_ERROR(Annotate(fits, PathOf(files, reference.file) + ": "));
  auto sounds = std::make_shared<SoundDataset>(std::move(files), reference, options.audio);
  if (table == nullptr) return sounds;
  return JoinColumns(std::move(sounds), std::move(table), leave_out);
}

}  // namespace onnxtrain
