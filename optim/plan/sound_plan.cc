// Plans sounds and spectrograms for a model's inputs (open_data.h).
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/plan/open_data.h"
#include "optim/plan/processor_config.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxRate = 1 << 20, kMaxFrames = int64_t{1} << 31, kMaxChannels = 64;
constexpr int64_t kSpeechRate = 16000;  // in Hz, of spectrograms

// The shape of one sample of an input as a sound or a spectrogram; extents of 0 are open.
struct SoundPlan {
  int64_t channels = 0, frames = 0;
};

// Returns the extents of a sample, 0 for those that are open.
Shape FindSampleShape(const ModelInput& input, const std::map<std::string, int64_t>& named) {
  Shape d;
  for (size_t i = 1; i < input.dims.size(); ++i) {
    const auto it = i < input.dim_names.size() ? named.find(input.dim_names[i]) : named.end();
    d.push_back(std::max<int64_t>(input.dims[i] < 0 && it != named.end() ? it->second : input.dims[i], 0));
  }
  return d;
}

// Returns nullopt if sounds cannot feed the input.
std::optional<SoundPlan> PlanSoundInput(const ModelInput& input, const std::map<std::string, int64_t>& named) {
  if (!input.has_shape || !IsFloat(input.dtype)) return std::nullopt;
  const Shape d = FindSampleShape(input, named);
  if (d.size() == 1) return SoundPlan{1, d[0]};
  if (d.size() != 2) return std::nullopt;
  if (d[1] == 1 && d[0] != 1) return SoundPlan{1, d[0]};
  return d[0] <= kMaxChannels ? std::optional(SoundPlan{d[0], d[1]}) : std::nullopt;
}

absl::Status ParseAudioLength(const std::string& text, AudioOptions* options) {
  if (text == "auto") return options->any_length = true, absl::OkStatus();
  if (text.ends_with('s')) {
    const auto seconds = ParseNumber(text.substr(0, text.size() - 1));
    options->seconds = seconds.value_or(0);
  } else {
    options->frames = ParseInt(text).value_or(0);
  }
  const bool possible =
      options->seconds > 0 ? options->seconds < 1e6 : options->frames >= 1 && options->frames <= kMaxFrames;
  return possible ? absl::OkStatus()
                  : Invalid("`audio_length`: expected a number of frames or seconds, 16000 or 1.5s, or auto, got '",
                            text, "'");
}

// Returns the sample rate in the model's metadata, which speech toolkits write; 0 if there is none.
int64_t FindRate(const OnnxModel& model) {
  const auto rate = ParseInt(FindModelMetadata(model, "sample_rate"));
  return rate.ok() && *rate >= 1 && *rate <= kMaxRate ? *rate : 0;
}

// Returns the length in frames; nullopt if it is set in seconds and the rate is unknown.
std::optional<int64_t> FindFrames(const AudioOptions& options) {
  if (options.frames > 0) return options.frames;
  if (options.seconds == 0 || options.sample_rate == 0) return std::nullopt;
  const int64_t samples = std::llround(options.seconds * double(options.sample_rate));
  const bool spectrogram = !options.spectrogram.style.empty();
  return spectrogram ? Spectrogram(options.spectrogram, options.sample_rate).CountFrames(samples) : samples;
}

// Returns true for the input that exports of NeMo give spectrograms.
bool IsNemoInput(const ModelInput& input) { return input.name == "audio_signal" && input.dims.size() == 3; }

// Returns the spectrograms that a model may take: those of the configuration, of its training, of its processor, or
// NeMo's; without a style if it takes sounds themselves.
absl::StatusOr<SpectrogramOptions> ChooseSpectrogram(const TrainConfig& config, const OnnxModel& model,
                                                     const std::optional<Preprocess>& before,
                                                     const SpectrogramOptions& of_processor) {
  if (config.spectrogram == "none") return SpectrogramOptions();
  SpectrogramOptions known = of_processor;
  if (before.has_value() && before->audio.has_value()) known = before->audio->spectrogram;
  if (config.spectrogram != "auto" && config.spectrogram != known.style)
    return FindSpectrogramStyle(config.spectrogram);
  if (known.style.empty() && !before.has_value() && std::ranges::any_of(model.inputs(), IsNemoInput))
    return FindSpectrogramStyle("nemo");
  return known;
}

// Returns nullopt if no spectrogram of the style can feed the input. Takes their form and their bands from it.
std::optional<SoundPlan> PlanSpectrogramInput(const ModelInput& input, const std::map<std::string, int64_t>& named,
                                              SpectrogramOptions* spectrogram, int64_t rate) {
  const Shape d = FindSampleShape(input, named);
  if (!input.has_shape || !IsFloat(input.dtype) || d.size() != 2) return std::nullopt;
  const int64_t width = Spectrogram(*spectrogram, rate).width();
  if (d[0] != d[1]) {
    const bool first = d[0] == width || (d[1] != width && d[0] > 0 && d[1] == 0);
    const bool last = d[1] == width || (d[0] != width && d[1] > 0 && d[0] == 0);
    if (first || last) spectrogram->bands_first = first;
  }
  const int64_t bands = spectrogram->bands_first ? d[0] : d[1];
  SpectrogramOptions fitted = *spectrogram;
  if (bands > 0) fitted.bands = bands * fitted.bands / width;
  if (!CheckSpectrogram(fitted).ok()) return std::nullopt;
  if (bands > 0 && Spectrogram(fitted, rate).width() != bands) return std::nullopt;
  *spectrogram = fitted;
  return SoundPlan{1, spectrogram->bands_first ? d[1] : d[0]};
}

// Takes the length that the input has. Fails if another one was asked for.
absl::Status TakeLength(const TrainConfig& config, const ModelInput& input, const SoundPlan& plan, bool asked,
                        AudioOptions* options) {
  if (plan.channels > 0) options->channels = plan.channels;
  if (plan.frames == 0) return absl::OkStatus();
  if (options->any_length && !config.audio_length.empty())
    return Invalid("`audio_length` auto: input '", input.name, "' takes ", plan.frames, " frames");
  if (asked && FindFrames(*options).value_or(plan.frames) != plan.frames)
    return Invalid("`audio_length` ", config.audio_length, ": input '", input.name, "' takes ", plan.frames, " frames");
  options->any_length = false;
  options->frames = plan.frames;
  options->seconds = 0;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AudioOptions> PlanAudio(const TrainConfig& config, const OnnxModel& model,
                                       const std::map<std::string, int64_t>& dims,
                                       const std::optional<Preprocess>& before, bool keeps_lengths) {
  const AudioPreprocess known = before.has_value() ? before->audio.value_or(AudioPreprocess()) : AudioPreprocess();
  const ProcessorConfig processor = before.has_value() ? ProcessorConfig() : ReadProcessorConfig(model.path());
  AudioOptions options{.sample_rate = config.sample_rate > 0  ? config.sample_rate
                                      : known.sample_rate > 0 ? known.sample_rate
                                      : FindRate(model) > 0   ? FindRate(model)
                                                              : processor.sample_rate,
                       .channels = known.channels,
                       .standardize = known.standardize || processor.standardize,
                       .padding = before.has_value() ? known.padding : processor.padding};
  ASSIGN_OR_RETURN(options.spectrogram, ChooseSpectrogram(config, model, before, processor.spectrogram));
  const bool spectrogram = !options.spectrogram.style.empty();
  if (spectrogram && !FindSpectrogramStyle(options.spectrogram.style).ok()) return options;  // refuses sound files
  if (spectrogram && options.sample_rate == 0) options.sample_rate = kSpeechRate;
  if (!config.audio_length.empty()) RETURN_IF_ERROR(ParseAudioLength(config.audio_length, &options));
  const bool asked = options.frames > 0 || options.seconds > 0 || options.any_length;
  if (!asked) options.frames = known.frames;
  if (!asked && before.has_value() && before->audio.has_value()) options.any_length = known.frames == 0;
  for (const ModelInput& input : model.inputs()) {
    const std::optional<SoundPlan> plan =
        spectrogram ? PlanSpectrogramInput(input, dims, &options.spectrogram, options.sample_rate)
                    : PlanSoundInput(input, dims);
    if (!plan.has_value()) continue;
    options.wanted = true;
    RETURN_IF_ERROR(TakeLength(config, input, *plan, asked, &options));
    if (plan->frames > 0 || asked || before.has_value()) return options;
    options.frames = processor.frames;
    options.any_length = spectrogram ? options.frames == 0 : keeps_lengths && input.dims.size() == 2;
    return options;
  }
  if (spectrogram && config.spectrogram == options.spectrogram.style)
    return Invalid("`spectrogram` ", config.spectrogram, ": no input takes spectrograms, [batch, frames, bands]");
  if (!spectrogram) return options;
  TrainConfig plain = config;  // the model computes spectrograms itself
  plain.spectrogram = "none";
  return PlanAudio(plain, model, dims, before, keeps_lengths);
}

std::optional<AudioPreprocess> DescribeAudio(const BoundData& data, const AudioOptions& options) {
  for (const FeedSpec& feed : data.feeds) {
    if (feed.columns.empty()) continue;
    const Column& column = data.dataset->columns()[feed.columns[0]];
    if (column.sample_rate == 0) continue;
    const Shape& shape = column.sample.shape;
    const bool spectrogram = !options.spectrogram.style.empty();
    const size_t time_axis = spectrogram ? column.length_axis : shape.size() - 1;
    return AudioPreprocess{.sample_rate = column.sample_rate,
                           .channels = shape.size() > 1 && !spectrogram ? shape.front() : 1,
                           .frames = column.variable ? 0 : shape[time_axis],
                           .standardize = options.standardize,
                           .padding = options.padding,
                           .spectrogram = options.spectrogram};
  }
  return std::nullopt;
}

}  // namespace onnxtrain
