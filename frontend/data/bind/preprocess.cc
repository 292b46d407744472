#include "frontend/data/bind/preprocess.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/image/image.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::ordered_json;

absl::StatusOr<std::vector<double>> ParseNumbers(std::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<std::string> parts, ParseList(text));
  std::vector<double> numbers;
  for (const std::string& part : parts) {
    ASSIGN_OR_RETURN(const double x, ParseNumber(part));
    numbers.push_back(x);
  }
  return numbers;
}

Json TransformJson(const ColumnTransform& t) {
  Json json = Json::object();
  if (!t.categories.empty()) json["encode"] = t.one_hot ? "onehot" : "index";
  if (!t.categories.empty()) json["categories"] = t.categories;
  if (!t.fill.empty()) json["fill"] = t.fill;
  return json;
}

absl::StatusOr<ColumnTransform> ParseTransform(const std::string& column, const Json& json) {
  if (!json.is_object()) return Invalid("'columns' holds something else than objects");
  ColumnTransform t{.column = column};
  std::string encode;
  RETURN_IF_ERROR(ReadField(json, "encode", &encode));
  RETURN_IF_ERROR(ReadField(json, "categories", &t.categories));
  RETURN_IF_ERROR(ReadField(json, "fill", &t.fill));
  t.one_hot = encode == "onehot";
  const bool place = t.categories.empty() || t.fill.empty() ||
                     (t.fill.size() == 1 && t.fill[0] >= 0 && t.fill[0] < static_cast<double>(t.categories.size()));
  if (t.categories.empty() != encode.empty() || !place)
    return Invalid("'columns' of '", Printable(column), "' contradict themselves");
  return t;
}

absl::Status ParseInput(const std::string& name, const Json& value, Preprocess* p) {
  if (!value.is_object()) return Invalid("'inputs' holds something else than objects");
  RETURN_IF_ERROR(ReadField(value, "columns", &p->inputs[name]));
  RETURN_IF_ERROR(ReadField(value, "layout", &p->layout[name]));
  bool pixels = false;
  RETURN_IF_ERROR(ReadField(value, "pixels", &pixels));
  if (pixels) p->pixels.insert(name);
  Standardization standardize;
  RETURN_IF_ERROR(ReadField(value, "mean", &standardize.shift));
  RETURN_IF_ERROR(ReadField(value, "std", &standardize.divisor));
  const auto positive = [](double x) { return x > 0; };
  if (standardize.shift.size() != standardize.divisor.size() || !std::ranges::all_of(standardize.divisor, positive))
    return Invalid("'mean' and 'std' of input '", Printable(name), "' do not fit together");
  if (!standardize.shift.empty()) p->standardize[name] = std::move(standardize);
  return absl::OkStatus();
}

Json PicturesJson(const PicturePreprocess& p) {
  Json json = {{"height", p.height}, {"width", p.width},   {"channels", p.channels},
               {"layout", p.layout}, {"resize", p.resize}, {"channel_order", p.channel_order}};
  if (p.resample != "bilinear") json["resample"] = p.resample;
  if (p.size_multiple > 0) json["size_multiple"] = p.size_multiple;
  for (const auto& f : p.folders)
    json["folders"].push_back({{"column", f.column}, {"folder", f.folder}, {"mask", f.mask}});
  return json;
}

absl::Status CheckPictures(const PicturePreprocess& p) {
  constexpr int64_t kMaxInputPixels = 1 << 16;
  const bool sizes = std::ranges::all_of(std::array{p.height, p.width, p.size_multiple},
                                         [](int64_t extent) { return extent >= 0 && extent <= kMaxInputPixels; });
  const bool channels = p.channels == 0 || p.channels == 1 || p.channels == 3;
  if (!sizes || !channels) return Invalid("'pictures' has sizes or channels that no pictures have");
  return FindFilter(p.resample).has_value() ? absl::OkStatus()
                                            : Invalid("'resample': no filter is named '", Printable(p.resample), "'");
}

absl::Status ParsePictures(const Json& json, Preprocess* preprocess) {
  const auto it = json.find("pictures");
  if (it == json.end()) return absl::OkStatus();
  if (!it->is_object()) return Invalid("'pictures' is no object");
  PicturePreprocess p;
  RETURN_IF_ERROR(ReadField(*it, "height", &p.height));
  RETURN_IF_ERROR(ReadField(*it, "width", &p.width));
  RETURN_IF_ERROR(ReadField(*it, "channels", &p.channels));
  RETURN_IF_ERROR(ReadField(*it, "size_multiple", &p.size_multiple));
  RETURN_IF_ERROR(ReadField(*it, "layout", &p.layout));
  RETURN_IF_ERROR(ReadField(*it, "resize", &p.resize));
  RETURN_IF_ERROR(ReadField(*it, "channel_order", &p.channel_order));
  RETURN_IF_ERROR(ReadField(*it, "resample", &p.resample));
  RETURN_IF_ERROR(CheckPictures(p));
  const auto folders = it->find("folders");
  for (const Json& folder : folders == it->end() ? Json::array() : *folders) {
    if (!folder.is_object()) return Invalid("'folders' holds something else than objects");
    PicturePreprocess::Folder f;
    RETURN_IF_ERROR(ReadField(folder, "column", &f.column));
    RETURN_IF_ERROR(ReadField(folder, "folder", &f.folder));
    RETURN_IF_ERROR(ReadField(folder, "mask", &f.mask));
    p.folders.push_back(std::move(f));
  }
  preprocess->pictures = std::move(p);
  return absl::OkStatus();
}

absl::Status ParseSpectrogram(const Json& json, SpectrogramOptions* s) {
  const auto it = json.find("spectrogram");
  if (it == json.end()) return absl::OkStatus();
  if (!it->is_object()) return Invalid("'spectrogram' is no object");
  RETURN_IF_ERROR(ReadField(*it, "style", &s->style));
  RETURN_IF_ERROR(ReadField(*it, "bands", &s->bands));
  RETURN_IF_ERROR(ReadField(*it, "window", &s->window));
  RETURN_IF_ERROR(ReadField(*it, "hop", &s->hop));
  RETURN_IF_ERROR(ReadField(*it, "fft", &s->fft));
  RETURN_IF_ERROR(ReadField(*it, "mean", &s->mean));
  RETURN_IF_ERROR(ReadField(*it, "deviation", &s->deviation));
  RETURN_IF_ERROR(ReadField(*it, "bands_first", &s->bands_first));
  return CheckSpectrogram(*s);
}

Json SpectrogramJson(const SpectrogramOptions& s) {
  return {{"style", s.style}, {"bands", s.bands}, {"window", s.window},       {"hop", s.hop},
          {"fft", s.fft},     {"mean", s.mean},   {"deviation", s.deviation}, {"bands_first", s.bands_first}};
}

absl::Status ParseAudio(const Json& json, Preprocess* preprocess) {
  const auto it = json.find("audio");
  if (it == json.end()) return absl::OkStatus();
  if (!it->is_object()) return Invalid("'audio' is no object");
  AudioPreprocess a;
  RETURN_IF_ERROR(ReadField(*it, "sample_rate", &a.sample_rate));
  RETURN_IF_ERROR(ReadField(*it, "channels", &a.channels));
  RETURN_IF_ERROR(ReadField(*it, "frames", &a.frames));
  RETURN_IF_ERROR(ReadField(*it, "standardize", &a.standardize));
  RETURN_IF_ERROR(ReadField(*it, "padding", &a.padding));
  RETURN_IF_ERROR(ParseSpectrogram(*it, &a.spectrogram));
  if (a.sample_rate < 1 || a.channels < 1 || a.frames < 0)
    return Invalid("'audio' lacks sample_rate, channels or frames");
  preprocess->audio = a;
  return absl::OkStatus();
}

absl::Status ParseText(const Json& json, TextPreprocess* text) {
  const auto it = json.find("text");
  if (it == json.end()) return absl::OkStatus();
  if (!it->is_object()) return Invalid("'text' is no object");
  RETURN_IF_ERROR(ReadField(*it, "columns", &text->columns));
  RETURN_IF_ERROR(ReadField(*it, "tokenizer", &text->tokenizer));
  RETURN_IF_ERROR(ReadField(*it, "sha256", &text->sha256));
  RETURN_IF_ERROR(ReadField(*it, "max_length", &text->max_length));
  RETURN_IF_ERROR(ReadField(*it, "loss_on", &text->loss_on));
  RETURN_IF_ERROR(ReadField(*it, "chat_template", &text->chat_template));
  const bool whole = !text->columns.empty() && text->columns.size() <= 2 && !text->tokenizer.empty();
  return whole && text->max_length > 0 ? absl::OkStatus() : Invalid("'text' lacks columns, tokenizer or max_length");
}

absl::Status ParseAlphabet(const Json& json, AlphabetPreprocess* alphabet) {
  const auto it = json.find("alphabet");
  if (it == json.end()) return absl::OkStatus();
  if (!it->is_object()) return Invalid("'alphabet' is no object");
  RETURN_IF_ERROR(ReadField(*it, "texts", &alphabet->texts));
  RETURN_IF_ERROR(ReadField(*it, "blank", &alphabet->blank));
  if (alphabet->blank >= 0 && alphabet->blank < std::ssize(alphabet->texts)) return absl::OkStatus();
  return Invalid("'alphabet' has no text for its blank");
}

absl::Status ParseMasks(const Json& json, Preprocess* p) {
  const auto masks = json.find("masks");
  if (masks == json.end()) return absl::OkStatus();
  std::map<std::string, std::string> encodings;
  RETURN_IF_ERROR(ReadField(json, "masks", &encodings));
  p->mask_encodings.emplace();
  for (const auto& [column, encoding] : encodings) {
    ASSIGN_OR_RETURN((*p->mask_encodings)[column], ParseMaskEncoding(encoding));
  }
  return absl::OkStatus();
}

// Calls parse(name, value) for each entry of the object json[key]; for none if it is missing.
template <typename Parse>
absl::Status ForEach(const Json& json, const char* key, Parse parse) {
  const auto entries = json.find(key);
  if (entries == json.end()) return absl::OkStatus();
  if (!entries->is_object()) return Invalid("'", key, "' is no object");
  for (const auto& [name, value] : entries->items()) RETURN_IF_ERROR(parse(name, value));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PixelScale> ParseNormalize(std::string_view text) {
  if (text == "raw") return PixelScale{};
  if (text == "unit") return PixelScale{.scale = 1.0 / 255};
  if (text == "imagenet") return PixelScale{1.0 / 255, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  const size_t slash = text.find('/');
  const auto wrong = [&] {
    return Invalid("expected unit, raw, imagenet or MEAN/STD like 0.1307/0.3081, got '", Printable(text), "'");
  };
  if (slash == std::string_view::npos) return wrong();
  const auto mean = ParseNumbers(text.substr(0, slash)), std = ParseNumbers(text.substr(slash + 1));
  if (!mean.ok() || !std.ok()) return wrong();
  if (mean->size() != std->size()) return Invalid(mean->size(), " means but ", std->size(), " deviations");
  for (double s : *std) {
    if (s <= 0) return Invalid("a deviation must be above 0, got ", s);
  }
  return PixelScale{1.0 / 255, *mean, *std};
}

std::string ToJson(const Preprocess& p) {
  Json json;
  if (!p.normalize.empty()) json["normalize"] = p.normalize;
  if (p.pictures.has_value()) json["pictures"] = PicturesJson(*p.pictures);
  if (p.audio.has_value()) {
    json["audio"] = {
        {"sample_rate", p.audio->sample_rate}, {"channels", p.audio->channels}, {"frames", p.audio->frames}};
    if (p.audio->standardize) json["audio"]["standardize"] = true;
    if (p.audio->padding != 0) json["audio"]["padding"] = p.audio->padding;
    if (!p.audio->spectrogram.style.empty()) json["audio"]["spectrogram"] = SpectrogramJson(p.audio->spectrogram);
  }
  for (const auto& [name, columns] : p.inputs) {
    json["inputs"][name]["columns"] = columns;
    if (const auto it = p.layout.find(name); it != p.layout.end()) json["inputs"][name]["layout"] = it->second;
    if (p.pixels.contains(name)) json["inputs"][name]["pixels"] = true;
    if (const auto it = p.standardize.find(name); it != p.standardize.end()) {
      json["inputs"][name]["mean"] = it->second.shift;
      json["inputs"][name]["std"] = it->second.divisor;
    }
  }
  for (const ColumnTransform& t : p.columns) json["columns"][t.column] = TransformJson(t);
  if (!p.text.columns.empty()) {
    json["text"] = {{"columns", p.text.columns},
                    {"tokenizer", p.text.tokenizer},
                    {"sha256", p.text.sha256},
                    {"max_length", p.text.max_length}};
    if (!p.text.loss_on.empty()) json["text"]["loss_on"] = p.text.loss_on;
    if (!p.text.chat_template.empty()) json["text"]["chat_template"] = p.text.chat_template;
  }
  if (!p.alphabet.texts.empty()) json["alphabet"] = {{"texts", p.alphabet.texts}, {"blank", p.alphabet.blank}};
  if (p.mask_encodings.has_value()) {
    json["masks"] = Json::object();
    for (const auto& [column, encoding] : *p.mask_encodings) json["masks"][column] = ToString(encoding);
  }
  json["label"] = p.label;
  json["classes"] = p.classes;
  json["loss"] = p.loss;
  json["output"] = p.output;
  if (!p.reference_model.empty()) json["reference_model"] = p.reference_model;
  return WriteJson(json, 2) + "\n";
}

absl::StatusOr<Preprocess> ParsePreprocess(const std::string& text) {
  const Json json = ParseJson<Json>(text);
  if (!json.is_object()) return Invalid("no JSON object");
  Preprocess p;
  RETURN_IF_ERROR(ReadField(json, "normalize", &p.normalize));
  RETURN_IF_ERROR(ParsePictures(json, &p));
  RETURN_IF_ERROR(ParseAudio(json, &p));
  RETURN_IF_ERROR(ReadField(json, "label", &p.label));
  RETURN_IF_ERROR(ReadField(json, "classes", &p.classes));
  RETURN_IF_ERROR(ReadField(json, "loss", &p.loss));
  RETURN_IF_ERROR(ReadField(json, "output", &p.output));
  RETURN_IF_ERROR(ReadField(json, "reference_model", &p.reference_model));
  RETURN_IF_ERROR(ParseText(json, &p.text));
  RETURN_IF_ERROR(ParseAlphabet(json, &p.alphabet));
  RETURN_IF_ERROR(ParseMasks(json, &p));
  RETURN_IF_ERROR(
      ForEach(json, "inputs", [&](const auto& name, const Json& value) { return ParseInput(name, value, &p); }));
  RETURN_IF_ERROR(ForEach(json, "columns", [&](const auto& name, const Json& value) -> absl::Status {
    ASSIGN_OR_RETURN(ColumnTransform transform, ParseTransform(name, value));
    p.columns.push_back(std::move(transform));
    return absl::OkStatus();
  }));
  return p;
}

std::string PreprocessPath(const std::string& model_path) {
  return (std::filesystem::path(model_path).parent_path() / "preprocess.json").string();
}

absl::StatusOr<std::optional<Preprocess>> ReadPreprocess(const std::string& model_path) {
  const std::string path = PreprocessPath(model_path);
  if (!IsRegularFile(path)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, 16 << 20));
  auto parsed = ParsePreprocess(text);
  if (!parsed.ok()) return Annotate(parsed.status(), path + ": ");
  return *std::move(parsed);
}

}  // namespace onnxtrain
