#include "frontend/data/audio/sounds.h"

#include <samplerate.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "frontend/base/status.h"
#include "frontend/data/audio/sound_file.h"

namespace onnxtrain {
namespace {

// Lower bound of the input frames that the resampling filter reads on one side of an output frame.
constexpr double kFilterReach = 1024;

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
absl::StatusOr<std::vector<float>> ReadFrames(const std::string& path, SoundFile& sound, const SoundFormat& format) {
  const SF_INFO& info = sound.info();
  const double step = double(info.samplerate) / double(format.rate);  // input frames per output frame
  const double reach = info.samplerate == format.rate ? 0 : kFilterReach * std::max(1.0, step);
  const auto frames =
      std::min<int64_t>(info.frames, static_cast<int64_t>(std::ceil(double(format.frames) * step + reach)));
  std::vector<float> samples(frames * info.channels);
  const int64_t got = sound.Read(frames, samples.data());
  if (got != frames && sound.KnowsLength()) return Invalid(path, ": the file is truncated or corrupt");
  samples.resize(std::max<int64_t>(got, 0) * info.channels);
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

absl::StatusOr<SoundFormat> PlanSoundFormat(const MediaFiles& files, int64_t i, const AudioOptions& options) {
  ASSIGN_OR_RETURN(const auto sound, SoundFile::Open(files, i));
  const SF_INFO& info = sound->info();
  SoundFormat format{.rate = options.sample_rate > 0 ? options.sample_rate : info.samplerate,
                     .channels = options.channels > 0 ? options.channels : info.channels};
  format.frames = options.frames > 0    ? options.frames
                  : options.seconds > 0 ? std::llround(options.seconds * double(format.rate))
                                        : ConvertFrames(info.frames, info.samplerate, format.rate);
  if (options.frames == 0 && options.seconds == 0 && !sound->KnowsLength())
    return Invalid(files.Describe(i), ": does not tell its length (`audio_length` N sets that of the samples)");
  return format;
}

absl::StatusOr<std::vector<float>> ReadSamples(const MediaFiles& files, int64_t i, const SoundFormat& format,
                                               const AudioOptions& options, const std::string& like) {
  ASSIGN_OR_RETURN(const auto sound, SoundFile::Open(files, i));
  const SF_INFO& info = sound->info();
  const std::string path = files.Describe(i);
  RETURN_IF_ERROR(CheckFormat(path, info, format, options, like));
  ASSIGN_OR_RETURN(std::vector<float> samples, ReadFrames(path, *sound, format));
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

absl::Status ReadSound(const MediaFiles& files, int64_t i, const SoundFormat& format, const AudioOptions& options,
                       const std::string& like, float* out) {
  ASSIGN_OR_RETURN(const std::vector<float> samples, ReadSamples(files, i, format, options, like));
  const int64_t channels = format.channels, frames = std::ssize(samples) / channels;
  for (int c = 0; c < channels; ++c, out += format.frames) {
    for (int64_t t = 0; t < frames; ++t) out[t] = samples[t * channels + c];
    if (options.standardize) Standardize({out, static_cast<size_t>(frames)});
    std::fill(out + frames, out + format.frames, static_cast<float>(options.padding));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
