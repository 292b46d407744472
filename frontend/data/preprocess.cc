#include "frontend/data/preprocess.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "frontend/base/units.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::ordered_json;

// Reads json[key] into *out where it is there and of the right kind; says so where it is of another.
template <typename T>
absl::Status Take(const Json& json, const char* key, T* out) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return absl::OkStatus();
  try {
    *out = it->get<T>();
  } catch (const Json::exception&) {
    return Invalid("'", key, "' is not what it should be");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> ParseNumbers(std::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<std::string> parts, ParseList(text));
  std::vector<double> numbers;
  for (const std::string& part : parts) {
    ASSIGN_OR_RETURN(const double x, ParseNumber(part));
    numbers.push_back(x);
  }
  return numbers;
}

}  // namespace

absl::StatusOr<PixelScale> ParseNormalize(std::string_view text) {
  if (text == "raw") return PixelScale{};
  if (text == "unit") return PixelScale{.scale = 1.0 / 255};
  if (text == "imagenet") return PixelScale{1.0 / 255, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  const size_t slash = text.find('/');
  const auto wrong = [&] {
    return Invalid("expected unit, raw, imagenet or MEAN/STD like 0.1307/0.3081, got '", text, "'");
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
  for (const auto& [name, columns] : p.inputs) {
    json["inputs"][name]["columns"] = columns;
    if (const auto it = p.layout.find(name); it != p.layout.end()) json["inputs"][name]["layout"] = it->second;
  }
  json["label"] = p.label;
  json["classes"] = p.classes;
  json["loss"] = p.loss;
  json["output"] = p.output;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Preprocess> ParsePreprocess(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return Invalid("no JSON object");
  Preprocess p;
  RETURN_IF_ERROR(Take(json, "normalize", &p.normalize));
  RETURN_IF_ERROR(Take(json, "label", &p.label));
  RETURN_IF_ERROR(Take(json, "classes", &p.classes));
  RETURN_IF_ERROR(Take(json, "loss", &p.loss));
  RETURN_IF_ERROR(Take(json, "output", &p.output));
  const auto inputs = json.find("inputs");
  if (inputs == json.end()) return p;
  if (!inputs->is_object()) return Invalid("'inputs' is no object");
  for (const auto& [name, value] : inputs->items()) {
    if (!value.is_object()) return Invalid("'inputs' holds something else than objects");
    RETURN_IF_ERROR(Take(value, "columns", &p.inputs[name]));
    RETURN_IF_ERROR(Take(value, "layout", &p.layout[name]));
  }
  return p;
}

std::string PreprocessPath(const std::string& model_path) {
  return (std::filesystem::path(model_path).parent_path() / "preprocess.json").string();
}

absl::StatusOr<std::optional<Preprocess>> ReadPreprocess(const std::string& model_path) {
  const std::string path = PreprocessPath(model_path);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, 16 << 20));
  auto parsed = ParsePreprocess(text);
  if (!parsed.ok()) return Annotate(parsed.status(), path + ": ");
  return *std::move(parsed);
}

}  // namespace onnxtrain
