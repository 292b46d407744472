#include "frontend/data/audio/sounds.h"

#include <samplerate.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/transcripts.h"

namespace onnxtrain {
namespace {

constexpr int kMaxChannels = 64;
// Lower bound of the input frames that the resampling filter reads on one side of an output frame.
constexpr double kFilterReach = 1024;

struct Close {
  void operator()(SNDFILE* file) const { sf_close(file); }
};
using Sound = std::unique_ptr<SNDFILE, Close>;

absl::StatusOr<Sound> OpenSound(const std::string& path, SF_INFO* info) {
  RETURN_IF_ERROR(RegularFileSize(path).status());
  *info = {};
  Sound sound(sf_open(path.c_str(), SFM_READ, info));
  if (sound == nullptr) return Invalid(path, ": ", sf_strerror(nullptr));
  if (info->frames <= 0 || info->channels < 1 || info->channels > kMaxChannels || info->samplerate < 1)
    return Invalid(path, ": ", info->frames, " frames of ", info->channels, " channels at ", info->samplerate,
                   " Hz are refused");
  return sound;
}

// Returns false for FLAC files without a length, as written to pipes.
bool KnowsLength(const SF_INFO& info) { return info.frames < SF_COUNT_MAX; }

int64_t ConvertFrames(int64_t frames, int64_t from, int64_t to) {
  return from == to ? frames : std::max<int64_t>(1, std::llround(double(frames) * double(to) / double(from)));
}

absl::Status CheckFormat(const std::string& path, const SF_INFO& info, const SoundFormat& format,
                         const AudioOptions& options, const std::string& like) {
  const auto check = [&](const char* what, int64_t is, int64_t want, const char* remedy) {
    return is == want ? absl::OkStatus()
                      : Invalid(path, ": ", what, " ", is, ", but ", want, " in ", like, " (", remedy, ")");
  };
  if (options.sample_rate == 0)
    RETURN_IF_ERROR(check("sample rate", info.samplerate, format.rate, "`sample_rate` HZ resamples"));
  if (format.channels != 1 || options.channels == 0)
    RETURN_IF_ERROR(check("channels:", info.channels, format.channels, "convert the files"));
  if (options.frames > 0 || options.seconds > 0 || options.any_length) return absl::OkStatus();
  return check("frames:", ConvertFrames(info.frames, info.samplerate, format.rate), format.frames,
               "`audio_length` N cuts and pads");
}

// Averages interleaved channels in place.
void AverageChannels(int channels, std::vector<float>* samples) {
  const size_t frames = samples->size() / channels;
  for (size_t t = 0; t < frames; ++t) {
    float sum = 0;
    for (int c = 0; c < channels; ++c) sum += (*samples)[t * channels + c];
    (*samples)[t] = sum / static_cast<float>(channels);
  }
  samples->resize(frames);
}

// Resamples by band-limited interpolation (Smith & Gossett, "A flexible sampling-rate conversion method", 1984).
absl::StatusOr<std::vector<float>> Resample(const std::vector<float>& samples, int channels, double ratio) {
  if (src_is_valid_ratio(ratio) == 0) return Invalid("resampling by a factor of ", ratio, " is not possible");
  const auto frames = static_cast<int64_t>(samples.size()) / channels;
  std::vector<float> out(static_cast<size_t>(std::ceil(double(frames) * ratio) + 1) * channels);
  SRC_DATA data{.data_in = samples.data(),
                .data_out = out.data(),
                .input_frames = frames,
                .output_frames = static_cast<int64_t>(out.size()) / channels,
                .src_ratio = ratio};
  if (const int error = src_simple(&data, SRC_SINC_MEDIUM_QUALITY, channels); error != 0)
    return Invalid(src_strerror(error));
  out.resize(data.output_frames_gen * channels);
  return out;
}

// Reads the interleaved frames that a sample needs.
absl::StatusOr<std::vector<float>> ReadFrames(const std::string& path, SNDFILE* sound, const SF_INFO& info,
                                              const SoundFormat& format) {
  const double step = double(info.samplerate) / double(format.rate);  // input frames per output frame
  const double reach = info.samplerate == format.rate ? 0 : kFilterReach * std::max(1.0, step);
  const auto frames =
      std::min<int64_t>(info.frames, static_cast<int64_t>(std::ceil(double(format.frames) * step + reach)));
  std::vector<float> samples(frames * info.channels);
  const sf_count_t got = sf_readf_float(sound, samples.data(), frames);
  if (got != frames && KnowsLength(info)) return Invalid(path, ": the file is truncated or corrupt");
  samples.resize(std::max<sf_count_t>(got, 0) * info.channels);
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!std::ranges::all_of(samples, finite)) return Invalid(path, ": holds samples that are not finite");
  return samples;
}

// Gives a sound zero mean and unit variance, as Wav2Vec2FeatureExtractor of transformers does.
void Standardize(std::span<float> sound) {
  constexpr double kEpsilon = 1e-7;
  const auto n = static_cast<double>(std::max<size_t>(sound.size(), 1));
  double sum = 0, squares = 0;
  for (const float x : sound) sum += x;
  const double mean = sum / n;
  for (const float x : sound) squares += (x - mean) * (x - mean);
  const double factor = 1 / std::sqrt(squares / n + kEpsilon);
  for (float& x : sound) x = static_cast<float>((x - mean) * factor);
}

}  // namespace

bool IsSoundName(const std::string& name) {
  static const auto* const kSuffixes = new std::vector<std::string>{".wav", ".flac", ".ogg", ".aiff", ".aif"};
  return HasSuffix(name, *kSuffixes, false);
}

absl::StatusOr<SoundFormat> PlanSoundFormat(const std::string& path, const AudioOptions& options) {
  SF_INFO info;
  RETURN_IF_ERROR(OpenSound(path, &info).status());
  SoundFormat format{.rate = options.sample_rate > 0 ? options.sample_rate : info.samplerate,
                     .channels = options.channels > 0 ? options.channels : info.channels};
  format.frames = options.frames > 0    ? options.frames
                  : options.seconds > 0 ? std::llround(options.seconds * double(format.rate))
                                        : ConvertFrames(info.frames, info.samplerate, format.rate);
  if (options.frames == 0 && options.seconds == 0 && !KnowsLength(info))
    return Invalid(path, ": does not tell its length (`audio_length` N sets that of the samples)");
  return format;
}

namespace {

// Reads the interleaved samples of a sound, at most those of the format.
absl::StatusOr<std::vector<float>> ReadSamples(const std::string& path, const SoundFormat& format,
                                               const AudioOptions& options, const std::string& like) {
  SF_INFO info;
  ASSIGN_OR_RETURN(const Sound sound, OpenSound(path, &info));
  RETURN_IF_ERROR(CheckFormat(path, info, format, options, like));
  ASSIGN_OR_RETURN(std::vector<float> samples, ReadFrames(path, sound.get(), info, format));
  const auto channels = static_cast<int>(format.channels);
  if (info.channels != channels) AverageChannels(info.channels, &samples);
  if (info.samplerate != format.rate) {
    auto resampled = Resample(samples, channels, double(format.rate) / info.samplerate);
    if (!resampled.ok()) return Annotate(resampled.status(), path + ": ");
    samples = *std::move(resampled);
  }
  samples.resize(std::min<size_t>(samples.size(), format.frames * channels));
  return samples;
}

}  // namespace

absl::Status ReadSound(const std::string& path, const SoundFormat& format, const AudioOptions& options,
                       const std::string& like, float* out) {
  ASSIGN_OR_RETURN(const std::vector<float> samples, ReadSamples(path, format, options, like));
  const int64_t channels = format.channels, frames = std::ssize(samples) / channels;
  for (int c = 0; c < channels; ++c, out += format.frames) {
    for (int64_t t = 0; t < frames; ++t) out[t] = samples[t * channels + c];
    if (options.standardize) Standardize({out, static_cast<size_t>(frames)});
    std::fill(out + frames, out + format.frames, static_cast<float>(options.padding));
  }
  return absl::OkStatus();
}

namespace {

struct SoundFiles {
  std::string column, root;        // name of the column; folder that `names` are relative to
  std::vector<std::string> names;  // file name of each sample
};

namespace fs = std::filesystem;

std::string GetSoundPath(const SoundFiles& files, int64_t i) {
  return (fs::path(files.root) / files.names[i]).string();
}

// The first readable file and the sample format derived from it.
struct Reference {
  int64_t file = 0;
  SoundFormat format;
  std::vector<int64_t> lengths = {};  // frames of each sample, if sounds keep their lengths
  std::optional<Spectrogram> spectrogram = {};
};

absl::StatusOr<Reference> FindReference(const SoundFiles& files, const AudioOptions& options) {
  absl::Status first;
  for (int64_t i = 0; i < std::ssize(files.names); ++i) {
    const auto format = PlanSoundFormat(GetSoundPath(files, i), options);
    if (format.ok()) return Reference{i, *format};
    if (first.ok()) first = format.status();
  }
  return first;
}

// Reads the lengths of all sounds from their headers; the format gets the greatest. Reading a file without a length
// fails with the reason.
absl::Status FindLengths(const SoundFiles& files, AudioOptions options, Reference* reference) {
  if (reference->format.channels != 1)
    return Invalid(GetSoundPath(files, reference->file), ": only sounds of one channel keep their lengths (",
                   "`audio_length` N)");
  options.sample_rate = reference->format.rate;
  for (int64_t i = 0; i < std::ssize(files.names); ++i) {
    const auto format = PlanSoundFormat(GetSoundPath(files, i), options);
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
  SoundDataset(SoundFiles files, Reference reference, const AudioOptions& options)
      : files_(std::move(files)), reference_(std::move(reference)), options_(options) {
    const SoundFormat& format = reference_.format;
    columns_ = {{.name = files_.column,
                 .sample = {DType::kFloat32, MakeShape()},
                 .sample_rate = format.rate,
                 .variable = options.any_length,
                 .length_axis = reference_.spectrogram.has_value() && options.spectrogram.bands_first ? 1 : 0}};
  }

  int64_t size() const override { return std::ssize(files_.names); }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string StableName(int64_t i) const override { return files_.names[i]; }
  std::string Describe(int64_t i) const override { return GetSoundPath(files_, i); }
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
    return ReadSound(Describe(i), format, options_, files_.names[reference_.file],
                     reinterpret_cast<float*>(out.data()));
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
                     ReadSamples(Describe(i), reference_.format, options_, files_.names[reference_.file]));
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

  SoundFiles files_;
  Reference reference_;
  AudioOptions options_;
  std::vector<Column> columns_;
};

// Makes a data set of a sound column, f32 in [-1, 1] of shape [frames] or, with several channels, [channels, frames],
// and the columns of `table` (may be null) except `leave_out` (-1: none). Files are read on demand. Properties that
// options.audio leaves open are those of the first readable file; files that differ are errors that name both numbers.
absl::StatusOr<std::shared_ptr<const Dataset>> MakeSoundDataset(SoundFiles files, std::shared_ptr<const Dataset> table,
                                                                int leave_out, const DatasetOptions& options) {
  AudioOptions audio = options.audio;
  std::optional<Spectrogram> spectrogram;
  if (!audio.spectrogram.style.empty()) {
    spectrogram.emplace(audio.spectrogram, audio.sample_rate);
    audio = SoundOptionsOf(*spectrogram, audio);
  }
  ASSIGN_OR_RETURN(Reference reference, FindReference(files, audio));
  if (audio.any_length) RETURN_IF_ERROR(FindLengths(files, audio, &reference));
  reference.spectrogram = std::move(spectrogram);
  const Type sample{DType::kFloat32, {reference.format.channels, reference.format.frames}};
  absl::Status fits = CheckShape(sample.shape);
  if (fits.ok()) fits = CheckMemory(static_cast<int64_t>(sample.bytes()), options.max_bytes);
  RETURN_IF_ERROR(Annotate(fits, GetSoundPath(files, reference.file) + ": "));
  auto sounds = std::make_shared<SoundDataset>(std::move(files), std::move(reference), audio);
  if (table == nullptr) return sounds;
  return JoinColumns(std::move(sounds), std::move(table), leave_out);
}

}  // namespace

bool IsSoundPath(const std::string& path) { return IsSoundName(path) && IsRegularFile(path); }

absl::StatusOr<std::shared_ptr<const Dataset>> OpenAudioTable(const std::string& path, const OpenTableFn& open,
                                                              const PathColumn& column, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(PathTable table, OpenPathTable(path, open, column, options));
  return MakeSoundDataset({column.name, table.folder, std::move(table.paths)}, table.table, table.column, options);
}

namespace {

namespace fs = std::filesystem;

struct SoundFile {
  std::string name;  // relative to the folder
  int64_t label = 0;
};

// The sound files of a folder or of its sub-folders.
struct Listing {
  std::vector<std::string> classes;  // empty: files have no classes
  std::vector<SoundFile> files;
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
  const bool mixed = !listing.classes.empty() && std::ranges::any_of(listing.files, [](const SoundFile& f) {
    return f.name.find('/') == std::string::npos;
  });
  if (mixed) return Invalid(path, ": has sound files beside the folders of classes");
  if (listing.files.empty()) return Invalid(path, ": the folder holds no sound files");
  return listing;
}

// Renumbers the classes by their index in `names`.
absl::Status RenumberClasses(const std::string& path, const std::vector<std::string>& names, Listing* listing) {
  if (names.empty() || listing->classes.empty()) return absl::OkStatus();
  for (SoundFile& file : listing->files) {
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
  SoundFiles files{.column = "audio", .root = path};
  for (const SoundFile& file : listing.files) files.names.push_back(file.name);
  std::shared_ptr<const Dataset> labels;
  if (options.text_labels) {
    ASSIGN_OR_RETURN(labels, OpenTranscripts(path, files.names));
  } else if (!listing.classes.empty()) {
    RETURN_IF_ERROR(RenumberClasses(path, options.folder_classes, &listing));
    ASSIGN_OR_RETURN(labels, MakeLabels(listing));
  }
  return MakeSoundDataset(std::move(files), std::move(labels), -1, options);
}

}  // namespace onnxtrain
