#include "optim/plan/audio_plan.h"

#include <algorithm>
#include <cmath>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/onnx/read/model_metadata.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxRate = 1 << 20, kMaxFrames = int64_t{1} << 31, kMaxChannels = 64;

// One sample of an input as a sound; extents of 0 are open.
struct SoundPlan {
  int64_t channels = 0, frames = 0;
};

// nullopt: no sounds fit that input.
std::optional<SoundPlan> PlanSoundInput(const ModelInput& input, const std::map<std::string, int64_t>& named) {
  if (!input.has_shape || !IsFloat(input.dtype)) return std::nullopt;
  Shape d;
  for (size_t i = 1; i < input.dims.size(); ++i) {
    const auto it = i < input.dim_names.size() ? named.find(input.dim_names[i]) : named.end();
    d.push_back(std::max<int64_t>(input.dims[i] < 0 && it != named.end() ? it->second : input.dims[i], 0));
  }
  if (d.size() == 1) return SoundPlan{1, d[0]};
  if (d.size() != 2) return std::nullopt;
  if (d[1] == 1 && d[0] != 1) return SoundPlan{1, d[0]};
  return d[0] <= kMaxChannels ? std::optional(SoundPlan{d[0], d[1]}) : std::nullopt;
}

absl::Status ParseAudioLength(const std::string& text, AudioOptions* options) {
  if (text.ends_with('s')) {
    const auto seconds = ParseNumber(text.substr(0, text.size() - 1));
    options->seconds = seconds.value_or(0);
  } else {
    options->frames = ParseInt(text).value_or(0);
  }
  const bool possible =
      options->seconds > 0 ? options->seconds < 1e6 : options->frames >= 1 && options->frames <= kMaxFrames;
  return possible ? absl::OkStatus()
                  : Invalid("`audio_length`: expected a number of frames or seconds, 16000 or 1.5s, got '", text, "'");
}

// The rate that the exporter has noted, as those of speech toolkits do; 0 where there is none.
int64_t FindRate(const OnnxModel& model) {
  const auto rate = ParseInt(FindModelMetadata(model, "sample_rate"));
  return rate.ok() && *rate >= 1 && *rate <= kMaxRate ? *rate : 0;
}

// The length in frames; nullopt where the rate, and with it the frames of so many seconds, is not known.
std::optional<int64_t> FindFrames(const AudioOptions& options) {
  if (options.frames > 0) return options.frames;
  if (options.seconds == 0 || options.sample_rate == 0) return std::nullopt;
  return std::llround(options.seconds * double(options.sample_rate));
}

}  // namespace

absl::StatusOr<AudioOptions> PlanAudio(const TrainConfig& config, const OnnxModel& model,
                                       const std::map<std::string, int64_t>& dims,
                                       const std::optional<Preprocess>& before) {
  const AudioPreprocess known = before.has_value() ? before->audio.value_or(AudioPreprocess()) : AudioPreprocess();
  AudioOptions options{.sample_rate = config.sample_rate > 0  ? config.sample_rate
                                      : known.sample_rate > 0 ? known.sample_rate
                                                              : FindRate(model),
                       .channels = known.channels};
  if (!config.audio_length.empty()) RETURN_IF_ERROR(ParseAudioLength(config.audio_length, &options));
  const bool asked = options.frames > 0 || options.seconds > 0;
  if (!asked) options.frames = known.frames;
  for (const ModelInput& input : model.inputs()) {
    const std::optional<SoundPlan> plan = PlanSoundInput(input, dims);
    if (!plan.has_value()) continue;
    if (plan->channels > 0) options.channels = plan->channels;
    if (plan->frames == 0) return options;
    if (asked && FindFrames(options).value_or(plan->frames) != plan->frames)
      return Invalid("`audio_length` ", config.audio_length, ": input '", input.name, "' takes ", plan->frames,
                     " frames");
    options.frames = plan->frames;
    options.seconds = 0;
    return options;
  }
  return options;
}

std::optional<AudioPreprocess> DescribeAudio(const BoundData& data) {
  for (const FeedSpec& feed : data.feeds) {
    if (feed.columns.empty()) continue;
    const Column& column = data.dataset->columns()[feed.columns[0]];
    if (column.sample_rate == 0) continue;
    const Shape& shape = column.sample.shape;
    return AudioPreprocess{column.sample_rate, shape.size() > 1 ? shape.front() : 1, shape.back()};
  }
  return std::nullopt;
}

absl::Status CheckAudioFields(const TrainConfig& config, const std::string& path, bool feeds_sounds) {
  for (const char* field : {"sample_rate", "audio_length"}) {
    if (!feeds_sounds && IsSpecified(config, field))
      return Invalid("`", field, "`: has no effect: ", path, " feeds no files of sound");
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
