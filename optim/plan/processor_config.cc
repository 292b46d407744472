#include "optim/plan/processor_config.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"
#include "optim/plan/folders.h"

namespace onnxtrain {
namespace {

using Json = OrderedJson;

constexpr int64_t kMostConfigBytes = int64_t{1} << 20;

template <typename T>
T FindField(const Json& json, const char* name, T otherwise) {
  T value = otherwise;
  return ReadField(json, name, &value).ok() ? value : otherwise;
}

bool IsPictureProcessor(const Json& json) { return json.contains("image_mean") || json.contains("do_rescale"); }

std::string FindNormalize(const Json& json) {
  const auto mean = FindField<std::vector<double>>(json, "image_mean", {}),
             std = FindField<std::vector<double>>(json, "image_std", {});
  const bool rescales = FindField(json, "do_rescale", true);
  const bool normalizes = FindField(json, "do_normalize", true) && !mean.empty() && !std.empty();
  if (!normalizes) return rescales ? "unit" : "raw";
  return rescales ? StrCat(absl::StrJoin(mean, ","), "/", absl::StrJoin(std, ",")) : "";
}

// Sets the size, and how a picture becomes so large: cut out of the middle, or stretched.
void ReadSize(const Json& json, ProcessorConfig* config) {
  const bool crops = FindField(json, "do_center_crop", json.contains("crop_size"));
  const char* name = crops ? "crop_size" : "size";
  if ((!crops && !FindField(json, "do_resize", true)) || !json.contains(name)) return;
  const Json& size = json[name];
  if (size.is_number_integer()) {
    config->height = config->width = size;
  } else if (size.is_object()) {
    config->height = FindField<int64_t>(size, "height", 0);
    config->width = FindField<int64_t>(size, "width", 0);
  }
  if (config->height < 1 || config->width < 1) config->height = config->width = 0;
  if (config->height > 0) config->resize = crops ? "crop" : "stretch";
}

// Returns the filter that processors of a class use unless their file says another one.
std::optional<Filter> FindClassFilter(const Json& json) {
  static constexpr struct {
    const char* prefix;
    Filter filter;
  } kOthers[] = {{"Beit", Filter::kBicubic},         {"Bit", Filter::kBicubic},       {"Blip", Filter::kBicubic},
                 {"BridgeTower", Filter::kBicubic},  {"Chameleon", Filter::kLanczos}, {"ChineseCLIP", Filter::kBicubic},
                 {"CLIP", Filter::kBicubic},         {"DeiT", Filter::kBicubic},      {"DPT", Filter::kBicubic},
                 {"EfficientNet", Filter::kNearest}, {"Flava", Filter::kBicubic},     {"Idefics3", Filter::kLanczos},
                 {"Levit", Filter::kBicubic},        {"OwlViT", Filter::kBicubic},    {"Perceiver", Filter::kBicubic},
                 {"PoolFormer", Filter::kBicubic},   {"SegGpt", Filter::kBicubic},    {"SiglipImage", Filter::kBicubic},
                 {"SmolVLM", Filter::kLanczos},      {"Vilt", Filter::kBicubic}};
  const auto name =
      FindField<std::string>(json, "image_processor_type", FindField<std::string>(json, "feature_extractor_type", ""));
  for (const auto& other : kOthers) {
    if (name.starts_with(other.prefix)) return other.filter;
  }
  return std::nullopt;
}

// Reads how sounds of one feature, which are samples themselves, are scaled and padded.
void ReadSamples(const Json& json, ProcessorConfig* config) {
  const bool wav2vec = FindField<std::string>(json, "feature_extractor_type", "").starts_with("Wav2Vec2");
  config->standardize = FindField(json, "do_normalize", wav2vec);
  config->padding = FindField(json, "padding_value", 0.0);
}

// Returns what a feature extractor computes otherwise than its style, where its file says so: "stride 3"; "" if
// nothing.
std::string FindDeviation(const Json& json, const std::string& style) {
  static const struct {
    const char *style, *key;
    Json usual;
  } kUsual[] = {{"whisper", "do_normalize", false}, {"nemo", "preemphasis", 0.97},
                {"seamless", "stride", 2},          {"s2t", "do_ceptral_normalize", true},
                {"s2t", "normalize_means", true},   {"s2t", "normalize_vars", true}};
  for (const auto& u : kUsual) {
    if (style == u.style && json.contains(u.key) && json[u.key] != u.usual)
      return StrCat(u.key, " ", WriteJson(json[u.key]));
  }
  return "";
}

// Reads the numbers of spectrograms of a style. Other ones get a style that nothing computes: their models take arrays.
void ReadSpectrogram(const Json& json, const std::string& style, ProcessorConfig* config) {
  if (const std::string deviation = FindDeviation(json, style); !deviation.empty()) {
    config->spectrogram.style = StrCat(style, " with ", deviation);
    return;
  }
  SpectrogramOptions s = FindSpectrogramStyle(style).value_or(SpectrogramOptions());
  s.bands = FindField(json, "num_mel_bins", FindField(json, "feature_size", s.bands));
  s.bands_first = style == "whisper";
  s.hop = FindField(json, "hop_length", s.hop);
  s.fft = FindField(json, "n_fft", s.fft);
  s.window = FindField(json, "win_length", style == "whisper" ? s.fft : s.window);
  const bool scales = FindField(json, "do_normalize", true);
  s.mean = scales ? FindField(json, "mean", s.mean) : 0;
  s.deviation = scales ? FindField(json, "std", s.deviation) : 0.5;
  if (!CheckSpectrogram(s).ok()) return;
  config->spectrogram = s;
  config->frames = FindField(json, "nb_max_frames", FindField(json, "max_length", FindUsualFrames(style)));
}

void ReadSounds(const Json& json, ProcessorConfig* config) {
  const std::string style = FindStyleOfExtractor(FindField<std::string>(json, "feature_extractor_type", ""));
  const bool samples = FindField<int64_t>(json, "feature_size", 0) == 1 && !json.contains("num_mel_bins");
  if (!json.contains("sampling_rate") || (style.empty() && !samples)) return;
  config->sample_rate = std::max<int64_t>(FindField<int64_t>(json, "sampling_rate", 0), 0);
  if (style.empty()) return ReadSamples(json, config);
  ReadSpectrogram(json, style, config);
}

// Returns the settings in a folder: those of the file that transformers writes for one processor, or those of this
// kind in the file that it writes for several.
Json ReadSettings(const std::string& folder, std::string* path) {
  *path = folder + "/preprocessor_config.json";
  const auto text = ReadTextFile(*path, kMostConfigBytes);
  if (text.ok()) return ParseJson<Json>(*text);
  const std::string several = folder + "/processor_config.json";
  const auto others = ReadTextFile(several, kMostConfigBytes);
  const Json json = others.ok() ? ParseJson<Json>(*others) : Json();
  for (const char* part : {"image_processor", "feature_extractor"}) {
    if (!json.is_object() || !json.contains(part)) continue;
    *path = several;
    return json[part];
  }
  return {};
}

}  // namespace

ProcessorConfig ReadProcessorConfig(const std::string& model_path) {
  const std::string folder = FindModelFolder(model_path);
  if (folder.empty()) return {};
  ProcessorConfig config;
  const Json json = ReadSettings(folder, &config.path);
  if (!json.is_object()) return config;
  ReadSounds(json, &config);
  if (!IsPictureProcessor(json)) return config;
  config.normalize = FindNormalize(json);
  ReadSize(json, &config);
  if (FindField(json, "do_resize", true))
    config.filter =
        json.contains("resample") ? FindFilter(FindField<int64_t>(json, "resample", -1)) : FindClassFilter(json);
  return config;
}

}  // namespace onnxtrain
