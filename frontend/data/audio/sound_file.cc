#include "frontend/data/audio/sound_file.h"

#include <samplerate.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {
namespace {

constexpr int kMaxChannels = 64;
// Input frames of the resampling filter on one side of an output frame, at least.
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

// A FLAC file that was written to a pipe does not tell its length.
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
  if (options.frames > 0 || options.seconds > 0) return absl::OkStatus();
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

// Band-limited interpolation (Smith & Gossett, "A flexible sampling-rate conversion method", 1984).
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

// Reads as many frames as a sample needs, interleaved.
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

absl::Status ReadSound(const std::string& path, const SoundFormat& format, const AudioOptions& options,
                       const std::string& like, float* out) {
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
  const int64_t frames = std::min<int64_t>(format.frames, std::ssize(samples) / channels);
  for (int c = 0; c < channels; ++c, out += format.frames) {
    for (int64_t t = 0; t < frames; ++t) out[t] = samples[t * channels + c];
    std::fill(out + frames, out + format.frames, 0.0F);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
