#include "optim/config/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::ordered_json;

template <typename... Fs>
struct Overloaded : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overloaded(Fs...) -> Overloaded<Fs...>;

// Formats with the fewest digits that parse to the same number.
std::string FormatDouble(double x) {
  if (x == std::trunc(x) && std::abs(x) < 1e15) return StrCat(static_cast<int64_t>(x));
  for (int digits = 6; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, x);
    if (const auto back = ParseNumber(text); back.ok() && *back == x) return text;
  }
  return absl::StrFormat("%.17g", x);
}

std::string FormatSize(int64_t bytes) {
  constexpr const char* kUnits[] = {"", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit < 4; ++unit) bytes /= 1024;
  return StrCat(bytes, kUnits[unit]);
}

std::string FormatInterval(const Interval& interval) {
  constexpr const char* kUnits[] = {"", "s", "ep"};  // by Interval::Unit
  return StrCat(FormatDouble(interval.value), kUnits[static_cast<size_t>(interval.unit)]);
}

bool InLimits(const FieldTraits& t, double x) {
  return x >= t.min && x <= t.max && x > t.above && x < t.below && std::isfinite(x);
}

bool HasWord(const FieldTraits& t) { return *t.word != 0; }

std::string FormatNumber(const FieldTraits& t, double x, std::string text) {
  if (HasWord(t) && x == t.word_value) return t.word;
  return InLimits(t, x) ? std::move(text) : "";
}

// Describes the valid values: "expected auto or a whole number of at least 1 and at most 1024".
std::string Expected(const ConfigField& field, std::string_view kind) {
  const FieldTraits& t = field.traits;
  std::string text = StrCat("expected ", HasWord(t) ? StrCat(t.word, " or ") : "", kind);
  const char* joint = " ";
  const auto add = [&](const char* limit, double x) {
    if (!std::isfinite(x)) return;
    StrAppend(&text, joint, limit, FormatDouble(x));
    joint = " and ";
  };
  add("of at least ", t.min);
  add("above ", t.above);
  add(std::isfinite(t.min) ? "at most " : "of at most ", t.max);
  add("below ", t.below);
  return text;
}

absl::Status Wrong(const ConfigField& field, std::string_view problem) {
  return Invalid("`", field.name, "`: ", problem);
}

absl::Status OutOfLimits(const ConfigField& field, double x) {
  return Wrong(field, StrCat(Expected(field, "a number"), ", got '", FormatDouble(x), "'"));
}

absl::StatusOr<double> ParseDouble(const ConfigField& field, std::string_view text) {
  if (HasWord(field.traits) && text == field.traits.word) return field.traits.word_value;
  const auto value = field.traits.unit == FieldTraits::Unit::kSeconds ? ParseDuration(text) : ParseNumber(text);
  if (!value.ok() && field.traits.unit == FieldTraits::Unit::kSeconds)
    return Wrong(field, ToStd(value.status().message()));
  if (!value.ok()) return Wrong(field, StrCat(Expected(field, "a number"), ", got '", text, "'"));
  if (!InLimits(field.traits, *value)) return OutOfLimits(field, *value);
  return *value;
}

absl::StatusOr<int64_t> ParseWhole(const ConfigField& field, std::string_view text) {
  const FieldTraits& t = field.traits;
  if (HasWord(t) && text == t.word) return static_cast<int64_t>(t.word_value);
  const bool size = t.unit == FieldTraits::Unit::kBytes;
  const auto value = size ? ParseSize(text) : ParseInt(text);
  if (!value.ok() && size) return Wrong(field, ToStd(value.status().message()));
  if (!value.ok()) {
    return Wrong(field, HasWord(t) ? StrCat(Expected(field, "a whole number"), ", got '", text, "'")
                                   : std::string(ToStd(value.status().message())));
  }
  if (!InLimits(t, static_cast<double>(*value))) return OutOfLimits(field, static_cast<double>(*value));
  return *value;
}

absl::Status CheckChoice(const ConfigField& field, std::string_view text) {
  const std::vector<std::string> choices = absl::StrSplit(field.traits.choices, '|', absl::SkipEmpty());
  if (choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) return absl::OkStatus();
  if (field.traits.also != nullptr && field.traits.also(text)) return absl::OkStatus();
  return Wrong(field, StrCat("expected one of ", field.traits.choices, field.traits.also_text, ", got '", text, "'"));
}

absl::Status CheckNumbers(const ConfigField& field, const std::vector<double>& numbers) {
  for (double x : numbers) {
    if (!InLimits(field.traits, x))
      return Wrong(field, StrCat(Expected(field, "numbers"), ", got '", FormatDouble(x), "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> ParseNumbers(const ConfigField& field, std::string_view text) {
  std::vector<double> numbers;
  if (HasWord(field.traits) && text == field.traits.word) return numbers;
  const auto parts = ParseList(text);
  for (const std::string& part : parts.ok() ? *parts : std::vector<std::string>{std::string(text)}) {
    const auto number = ParseNumber(part);
    if (!number.ok()) return Wrong(field, StrCat(Expected(field, "numbers"), ", got '", part, "'"));
    numbers.push_back(*number);
  }
  RETURN_IF_ERROR(CheckNumbers(field, numbers));
  return numbers;
}

absl::StatusOr<Interval> ParseIntervalField(const ConfigField& field, std::string_view text) {
  if (HasWord(field.traits) && text == field.traits.word) return Interval();
  const auto interval = ParseInterval(text);
  if (!interval.ok()) return Wrong(field, ToStd(interval.status().message()));
  return *interval;
}

absl::Status SetText(const ConfigField& field, std::string_view text, bool* value) {
  if (text != "true" && text != "false") return Wrong(field, StrCat("expected true or false, got '", text, "'"));
  *value = text == "true";
  return absl::OkStatus();
}
absl::Status SetText(const ConfigField& field, std::string_view text, int64_t* value) {
  ASSIGN_OR_RETURN(*value, ParseWhole(field, text));
  return absl::OkStatus();
}
absl::Status SetText(const ConfigField& field, std::string_view text, double* value) {
  ASSIGN_OR_RETURN(*value, ParseDouble(field, text));
  return absl::OkStatus();
}
absl::Status SetText(const ConfigField& field, std::string_view text, std::string* value) {
  if (std::string_view(field.traits.choices).starts_with("on|off"))  // configurations of other trainers have booleans
    text = text == "true" ? "on" : text == "false" ? "off" : text;
  RETURN_IF_ERROR(CheckChoice(field, text));
  *value = text;
  return absl::OkStatus();
}
absl::Status SetText(const ConfigField& field, std::string_view text, std::vector<std::string>* value) {
  if (field.traits.repeatable) return value->emplace_back(text), absl::OkStatus();
  auto list = ParseList(text);
  if (!list.ok()) return Wrong(field, ToStd(list.status().message()));
  *value = *std::move(list);
  return absl::OkStatus();
}
absl::Status SetText(const ConfigField& field, std::string_view text, std::vector<double>* value) {
  ASSIGN_OR_RETURN(*value, ParseNumbers(field, text));
  return absl::OkStatus();
}
absl::Status SetText(const ConfigField& field, std::string_view text, Interval* value) {
  ASSIGN_OR_RETURN(*value, ParseIntervalField(field, text));
  return absl::OkStatus();
}

// Formats a value as one text; "": no value. Repeatable fields are formatted elsewhere.
struct FormatField {
  const FieldTraits& traits;

  std::string operator()(bool x) const { return x ? "true" : "false"; }
  std::string operator()(int64_t x) const {
    return FormatNumber(traits, static_cast<double>(x),
                        traits.unit == FieldTraits::Unit::kBytes ? FormatSize(x) : StrCat(x));
  }
  std::string operator()(double x) const {
    return FormatNumber(traits, x, StrCat(FormatDouble(x), traits.unit == FieldTraits::Unit::kSeconds ? "s" : ""));
  }
  std::string operator()(const std::string& x) const { return x; }
  std::string operator()(const std::vector<std::string>& x) const { return absl::StrJoin(x, ","); }
  std::string operator()(const std::vector<double>& x) const {
    if (x.empty()) return traits.word;
    return absl::StrJoin(x, ",", [](std::string* out, double v) { *out += FormatDouble(v); });
  }
  std::string operator()(const Interval& x) const { return x.value == 0 ? traits.word : FormatInterval(x); }
};

// Checks limits and choices of a value that was not parsed.
struct CheckField {
  const ConfigField& field;

  absl::Status operator()(int64_t x) const { return (*this)(static_cast<double>(x)); }
  absl::Status operator()(double x) const {
    const bool word = HasWord(field.traits) && x == field.traits.word_value;
    return word || InLimits(field.traits, x) ? absl::OkStatus() : OutOfLimits(field, x);
  }
  absl::Status operator()(const std::string& x) const { return CheckChoice(field, x); }
  absl::Status operator()(const std::vector<double>& x) const { return CheckNumbers(field, x); }
  absl::Status operator()(const Interval& x) const {
    const bool word = HasWord(field.traits) && x == Interval();
    return word || x.value > 0 ? absl::OkStatus() : Wrong(field, "expected an interval above 0");
  }
  absl::Status operator()(bool) const { return absl::OkStatus(); }
  absl::Status operator()(const std::vector<std::string>& x) const {
    const bool empty = std::any_of(x.begin(), x.end(), [](const std::string& s) { return s.empty(); });
    return empty ? Wrong(field, "an empty name in a list") : absl::OkStatus();
  }
};

Json FieldJson(const TrainConfig& config, const ConfigField& field) {
  return std::visit(Overloaded{[&](std::string TrainConfig::*m) { return Json(config.*m); },
                               [&](std::vector<std::string> TrainConfig::*m) { return Json(config.*m); },
                               [&](std::vector<double> TrainConfig::*m) { return Json(config.*m); },
                               [&](bool TrainConfig::*m) { return Json(config.*m); },
                               [&](auto m) {
                                 const std::string text = FormatField{field.traits}(config.*m);
                                 return Json::accept(text) ? Json::parse(text) : Json(text);
                               }},
                    field.member);
}

absl::Status SetArray(TrainConfig* config, const ConfigField& field, const Json& array) {
  if (const auto* names = std::get_if<std::vector<std::string> TrainConfig::*>(&field.member)) {
    for (const Json& element : array) {
      if (!element.is_string()) return Wrong(field, StrCat("expected text, got ", WriteJson(element)));
      (config->**names).push_back(element.get<std::string>());
    }
    return absl::OkStatus();
  }
  const auto* numbers = std::get_if<std::vector<double> TrainConfig::*>(&field.member);
  if (numbers == nullptr) return Wrong(field, "expected one value, got an array");
  for (const Json& element : array) {
    if (!element.is_number()) return Wrong(field, StrCat("expected numbers, got ", WriteJson(element)));
    (config->**numbers).push_back(element.get<double>());
  }
  return absl::OkStatus();
}

}  // namespace

bool DiffersFromDefault(const TrainConfig& config, const ConfigField& field) {
  static const TrainConfig kDefaults;
  return std::visit([&](auto member) { return !(config.*member == kDefaults.*member); }, field.member);
}

bool IsSpecified(const TrainConfig& config, const ConfigField& field) {
  return config.specified.contains(field.name) || DiffersFromDefault(config, field);
}

absl::Status SetField(TrainConfig* config, const ConfigField& field, std::string_view text) {
  RETURN_IF_ERROR(std::visit([&](auto member) { return SetText(field, text, &(config->*member)); }, field.member));
  config->specified.emplace(field.name);
  return absl::OkStatus();
}

std::vector<std::string> FieldTexts(const TrainConfig& config, const ConfigField& field) {
  if (field.traits.repeatable) return config.*std::get<std::vector<std::string> TrainConfig::*>(field.member);
  std::string text = std::visit([&](auto m) { return FormatField{field.traits}(config.*m); }, field.member);
  return text.empty() ? std::vector<std::string>() : std::vector<std::string>{std::move(text)};
}

bool IsSpecified(const TrainConfig& config, std::string_view name) {
  const ConfigField* field = FindField(name);
  return field != nullptr && IsSpecified(config, *field);
}

absl::Status CheckFields(const TrainConfig& config) {
  for (const ConfigField& field : ConfigFields()) {
    if (!DiffersFromDefault(config, field)) continue;
    RETURN_IF_ERROR(std::visit([&](auto m) { return CheckField{field}(config.*m); }, field.member));
  }
  return absl::OkStatus();
}

namespace {

bool IsWritten(const TrainConfig& config, const ConfigField& field, unsigned tasks) {
  return (field.tasks & tasks) != 0 && !field.traits.transient && IsSpecified(config, field);
}

}  // namespace

std::string ToFlags(const TrainConfig& config, unsigned tasks) {
  std::string text;
  for (const ConfigField& field : ConfigFields()) {
    if (!IsWritten(config, field, tasks)) continue;
    std::string flag = field.name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    for (const std::string& value : FieldTexts(config, field)) StrAppend(&text, "--", flag, "=", value, "\n");
  }
  return text;
}

// JSON is YAML, whose plain words can mean numbers, truth values and dates.
std::string ToYaml(const TrainConfig& config, unsigned tasks) {
  std::string text;
  for (const ConfigField& field : ConfigFields()) {
    if (!IsWritten(config, field, tasks) || FieldTexts(config, field).empty()) continue;
    StrAppend(&text, field.name, ": ", WriteJson(FieldJson(config, field)), "\n");
  }
  return text;
}

std::string ToJson(const TrainConfig& config) {
  Json json = Json::object();
  for (const ConfigField& field : ConfigFields()) {
    if (!field.traits.transient && IsSpecified(config, field)) json[field.name] = FieldJson(config, field);
  }
  return WriteJson(json, 2) + "\n";
}

absl::StatusOr<TrainConfig> FromJson(std::string_view text) {
  const Json json = ParseJson<Json>(text);
  if (!json.is_object()) return Invalid("a configuration is a JSON object");
  TrainConfig config;
  for (const auto& [name, value] : json.items()) {
    const ConfigField* field = FindField(name);
    if (field == nullptr) return Invalid("'", name, "': no field of a configuration");
    if (value.is_array()) {
      RETURN_IF_ERROR(SetArray(&config, *field, value));
      config.specified.emplace(name);
    } else {
      RETURN_IF_ERROR(SetField(&config, *field, value.is_string() ? value.get<std::string>() : WriteJson(value)));
    }
  }
  return config;
}

}  // namespace onnxtrain
