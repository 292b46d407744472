#include "frontend/data/audio/sounds.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/audio/sound_file.h"
#include "frontend/data/audio/spectrogram.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/transcripts.h"

namespace onnxtrain {
namespace {

// The first readable file and the sample format derived from it.
struct Reference {
  int64_t file = 0;
  SoundFormat format;
  std::vector<int64_t> lengths = {};  // frames of each sample, if sounds keep their lengths
  std::optional<Spectrogram> spectrogram = {};
};

absl::StatusOr<Reference> FindReference(const MediaFiles& files, const AudioOptions& options) {
  absl::Status first;
  for (int64_t i = 0; i < files.size(); ++i) {
    const auto format = PlanSoundFormat(files, i, options);
    if (format.ok()) return Reference{i, *format};
    if (first.ok()) first = format.status();
  }
  return first;
}

// Reads the lengths of all sounds from their headers; the format gets the greatest. Reading a file without a length
// fails with the reason.
absl::Status FindLengths(const MediaFiles& files, AudioOptions options, Reference* reference) {
  if (reference->format.channels != 1)
    return Invalid(files.Describe(reference->file), ": only sounds of one channel keep their lengths (",
                   "`audio_length` N)");
  options.sample_rate = reference->format.rate;
  for (int64_t i = 0; i < files.size(); ++i) {
    const auto format = PlanSoundFormat(files, i, options);
    reference->lengths.push_back(format.ok() ? format->frames : 1);
    reference->format.frames = std::max(reference->format.frames, reference->lengths.back());
  }
  return absl::OkStatus();
}

// Returns the options that sounds are read with, of which spectrograms are made.
AudioOptions SoundOptionsOf(const Spectrogram& spectrogram, AudioOptions options) {
  options.channels = 1;
  if (options.frames > 0) options.frames = spectrogram.CountSamples(options.frames);
  return options;
}

class SoundDataset : public Dataset {
 public:
  SoundDataset(SoundColumn sounds, Reference reference, const AudioOptions& options)
      : files_(std::move(sounds.files)), reference_(std::move(reference)), options_(options) {
    const SoundFormat& format = reference_.format;
    columns_ = {{.name = sounds.name,
                 .sample = {DType::kFloat32, MakeShape()},
                 .sample_rate = format.rate,
                 .variable = options.any_length,
                 .length_axis = reference_.spectrogram.has_value() && options.spectrogram.bands_first ? 1 : 0}};
  }

  int64_t size() const override { return files_->size(); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return files_->Name(i); }
  std::string Describe(int64_t i) const override { return files_->Describe(i); }
  int64_t Length(int64_t i) const override { return options_.any_length ? CountFrames(reference_.lengths[i]) : 0; }
  std::vector<std::string> notes() const override {
    std::vector<std::string> lines = DescribeLengths();
    if (options_.standardize) lines.emplace_back("each sound is scaled to zero mean and unit variance");
    const SpectrogramOptions& s = options_.spectrogram;
    if (reference_.spectrogram.has_value())
      lines.push_back(StrCat("the model takes spectrograms: style ", s.style, ", ", s.bands, " bands, windows of ",
                             s.window, " samples every ", s.hop, " (`spectrogram`)"));
    return lines;
  }

  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    CHECK(i >= 0 && i < size() && c == 0);
    SoundFormat format = reference_.format;
    if (reference_.spectrogram.has_value()) return ReadSpectrogram(i, out);
    if (options_.any_length) format.frames = static_cast<int64_t>(out.size() / sizeof(float));
    CHECK_EQ(out.size(), format.frames * format.channels * sizeof(float));
    return ReadSound(*files_, i, format, options_, files_->Name(reference_.file), reinterpret_cast<float*>(out.data()));
  }

 private:
  // Returns the frames of a sample that is made of a sound of that many samples.
  int64_t CountFrames(int64_t samples) const {
    return reference_.spectrogram.has_value() ? reference_.spectrogram->CountFrames(samples) : samples;
  }

  Shape MakeShape() const {
    const SoundFormat& format = reference_.format;
    if (reference_.spectrogram.has_value()) return reference_.spectrogram->FrameShape(CountFrames(format.frames));
    return format.channels > 1 ? Shape{format.channels, format.frames} : Shape{format.frames};
  }

  absl::Status ReadSpectrogram(int64_t i, std::span<std::byte> out) const {
    const Spectrogram& spectrogram = *reference_.spectrogram;
    const int64_t frames = static_cast<int64_t>(out.size() / sizeof(float)) / spectrogram.width();
    ASSIGN_OR_RETURN(const std::vector<float> samples,
                     ReadSamples(*files_, i, reference_.format, options_, files_->Name(reference_.file)));
    spectrogram.Compute(samples, frames, reinterpret_cast<float*>(out.data()));
    return absl::OkStatus();
  }

  std::vector<std::string> DescribeLengths() const {
    if (options_.any_length)
      return {StrCat("sounds keep their lengths, of ", CountFrames(*std::ranges::min_element(reference_.lengths)),
                     " to ", CountFrames(reference_.format.frames), " frames at ", reference_.format.rate,
                     " Hz (`audio_length`)")};
    if (options_.sample_rate == 0 && options_.frames == 0 && options_.seconds == 0) return {};
    const SoundFormat& f = reference_.format;
    return {StrCat("sounds: ", f.rate, " Hz, ", f.channels, f.channels == 1 ? " channel, " : " channels, ",
                   CountFrames(f.frames),
                   " frames; others are resampled, averaged, cut or padded (`sample_rate`, `audio_length`)")};
  }

  std::shared_ptr<const MediaFiles> files_;
  Reference reference_;
  AudioOptions options_;
  std::vector<Column> columns_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> MakeSoundDataset(SoundColumn sounds,
                                                                std::shared_ptr<const Dataset> table, int leave_out,
                                                                const DatasetOptions& options) {
  AudioOptions audio = options.audio;
  std::optional<Spectrogram> spectrogram;
  if (!audio.spectrogram.style.empty()) {
    RETURN_IF_ERROR(Annotate(FindSpectrogramStyle(audio.spectrogram.style).status(),
                             "the model's processor asks for others than `spectrogram` has: "));
    spectrogram.emplace(audio.spectrogram, audio.sample_rate);
    audio = SoundOptionsOf(*spectrogram, audio);
  }
  ASSIGN_OR_RETURN(Reference reference, FindReference(*sounds.files, audio));
  if (audio.any_length) RETURN_IF_ERROR(FindLengths(*sounds.files, audio, &reference));
  reference.spectrogram = std::move(spectrogram);
  const Type sample{DType::kFloat32, {reference.format.channels, reference.format.frames}};
  absl::Status fits = CheckShape(sample.shape);
  if (fits.ok()) fits = CheckMemory(static_cast<int64_t>(sample.bytes()), options.max_bytes);
  RETURN_IF_ERROR(Annotate(fits, sounds.files->Describe(reference.file) + ": "));
  auto samples = std::make_shared<SoundDataset>(std::move(sounds), std::move(reference), audio);
  if (table == nullptr) return samples;
  return JoinColumns(std::move(samples), std::move(table), leave_out);
}

bool IsSoundPath(const std::string& path) { return IsSoundName(path) && IsRegularFile(path); }

absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioTable(const std::string& path, const OpenTableFn& open,
                                                              const PathColumn& column, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(PathTable table, OpenPathTable(path, open, column, options));
  return MakeSoundDataset({column.name, FilesInFolder(table.folder, std::move(table.paths))}, table.table, table.column,
                          options);
}

namespace {

namespace fs = std::filesystem;

struct ListedSound {
  std::string name;  // relative to the folder
  int64_t label = 0;
};

// The sound files of a folder or of its sub-folders.
struct Listing {
  std::vector<std::string> classes;  // empty: files have no classes
  std::vector<ListedSound> files;
};

absl::StatusOr<Listing> ListSounds(const std::string& path) {
  Listing listing;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(path));
  for (const std::string& name : names) {
    std::error_code ignored;
    const fs::path folder = fs::path(path) / name;
    if (IsSoundName(name)) listing.files.push_back({name});
    if (!fs::is_directory(folder, ignored)) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> inside, ListFolder(folder.string()));
    const size_t before = listing.files.size();
    for (const std::string& file : inside) {
      if (IsSoundName(file)) listing.files.push_back({StrCat(name, "/", file), std::ssize(listing.classes)});
    }
    if (listing.files.size() > before) listing.classes.push_back(name);
  }
  const bool mixed = !listing.classes.empty() && std::ranges::any_of(listing.files, [](const ListedSound& f) {
    return f.name.find('/') == std::string::npos;
  });
  if (mixed) return Invalid(path, ": has sound files beside the folders of classes");
  if (listing.files.empty()) return Invalid(path, ": the folder holds no sound files");
  return listing;
}

// Renumbers the classes by their index in `names`.
absl::Status RenumberClasses(const std::string& path, const std::vector<std::string>& names, Listing* listing) {
  if (names.empty() || listing->classes.empty()) return absl::OkStatus();
  for (ListedSound& file : listing->files) {
    const std::string& name = listing->classes[file.label];
    file.label = std::ranges::find(names, name) - names.begin();
    if (file.label == std::ssize(names))
      return Invalid(path, ": '", name, "' is not among the ", names.size(), " classes",
                     ClassSpellings(names).Suggest(name), " (`class_map` FILE gives others, and their order)");
  }
  listing->classes = names;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Dataset>> MakeLabels(const Listing& listing) {
  HostTensor labels({DType::kInt64, {std::ssize(listing.files)}});
  for (int64_t i = 0; i < labels.size(); ++i) labels.SetInt(i, listing.files[i].label);
  std::vector<NamedTensor> columns;
  columns.push_back({.name = "label", .tensor = std::move(labels), .classes = listing.classes});
  return MakeMemoryDataset(std::move(columns), [](int64_t i) { return StrCat("sample ", i); });
}

}  // namespace

bool IsAudioFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && ListSounds(path).ok();
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioFolder(const std::string& path, const DatasetOptions& options) {
  if (options.text_labels) {
    if (const std::string table = FindTextTable(path); !table.empty()) return OpenDataset(table, options);
  }
  ASSIGN_OR_RETURN(Listing listing, ListSounds(path));
  std::vector<std::string> names;
  for (const ListedSound& file : listing.files) names.push_back(file.name);
  std::shared_ptr<const Dataset> labels;
  if (options.text_labels) {
    ASSIGN_OR_RETURN(labels, OpenTranscripts(path, names));
  } else if (!listing.classes.empty()) {
    RETURN_IF_ERROR(RenumberClasses(path, options.folder_classes, &listing));
    ASSIGN_OR_RETURN(labels, MakeLabels(listing));
  }
  return MakeSoundDataset({"audio", FilesInFolder(path, std::move(names))}, std::move(labels), -1, options);
}

}  // namespace onnxtrain
