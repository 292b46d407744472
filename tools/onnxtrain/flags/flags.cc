#include "tools/onnxtrain/flags/flags.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "optim/config/config_synonyms.h"

namespace onnxtrain::cli {
namespace {

// Returns "; did you mean adam?" if a value is close to a choice of the field.
std::string Suggestion(const ConfigField& field, const std::string& value) {
  const std::vector<std::string> choices = absl::StrSplit(field.traits.choices, '|', absl::SkipEmpty());
  const std::string near = Nearest(value, choices);
  return near.empty() || near == value ? "" : StrCat("; did you mean ", near, "?");
}

absl::Status SetFlag(const SpecifiedFlag& flag, TrainConfig* config) {
  if (flag.value.empty()) return absl::OkStatus();
  const ConfigField& field = *FindField(flag.name);
  const absl::Status status = SetField(config, field, flag.value);
  if (status.ok()) return status;
  const std::string place = flag.place.empty() ? "" : StrCat(flag.place, ": ");
  const std::string written = flag.written.empty() ? "" : StrCat(FormatFlag(flag.written), ": ");
  return Invalid(place, written, ToStd(status.message()), Suggestion(field, flag.value));
}

bool IsGiven(const Arguments& args, std::string_view name) {
  return std::ranges::any_of(args.flags, [&](const SpecifiedFlag& flag) { return flag.name == name; });
}

// Returns true if the flags give a batch per device, by a synonym of another library, and no global batch.
bool BatchFollowsDevices(const Arguments& args, const TrainConfig& config) {
  const auto micro =
      std::ranges::find(args.flags.rbegin(), args.flags.rend(), "micro_batch_size", &SpecifiedFlag::name);
  if (micro == args.flags.rend() || micro->written.empty() || config.micro_batch_size < 1) return false;
  return FindSynonym(micro->written)->per_device && !IsGiven(args, "batch_size");
}

// Sets the global batch to micro-batch × devices × accumulation steps. Parts of a model count as one device.
void SetBatchOfDevices(int ranks, TrainConfig* config) {
  const bool parts = config->pipeline > 1 || config->tensor > 1;
  const int64_t devices = parts ? 1 : std::max<int64_t>(ranks, config->world);
  const int64_t passes = devices * std::max<int64_t>(1, config->gradient_accumulation_steps);
  config->batch_size = config->micro_batch_size * passes;
  config->gradient_accumulation_steps = 0;  // derived from the batch
  config->specified.erase("gradient_accumulation_steps");
  config->specified.emplace("batch_size");
}

std::string FirstOrEmpty(const std::vector<std::string>& texts) { return texts.empty() ? "" : texts.front(); }

std::string HelpLine(const ConfigField& field) {
  constexpr size_t kIndent = 38, kWidth = 120;
  std::string line = StrCat("  ", HelpName(field), field.is_bool() ? "" : " ", field.value);
  const size_t used = CountColumns(line);
  line += used < kIndent ? std::string(kIndent - used, ' ') : "\n" + std::string(kIndent, ' ');
  const std::string otherwise = DefaultText(field);
  const std::string text = StrCat(field.help, otherwise.empty() ? "" : StrCat(" (default ", otherwise, ")"));
  AppendWrapped(FieldsToFlags(text), kIndent, kWidth, &line);
  return line + "\n";
}

}  // namespace

std::vector<FlagSpec> ListFlags(unsigned task) {
  std::vector<FlagSpec> specs;
  for (const ConfigField& field : ConfigFields()) {
    const bool named = *field.traits.choices != 0 && *field.value != '[';
    const char* value = named ? field.traits.choices : field.value;
    if ((field.tasks & task) != 0) specs.push_back({field.name, field.is_bool(), field.traits.repeatable, value});
  }
  return specs;
}

absl::StatusOr<TrainConfig> ParseConfig(const Arguments& args, int ranks) {
  TrainConfig config;
  for (const SpecifiedFlag& flag : args.flags) RETURN_IF_ERROR(SetFlag(flag, &config));
  if (BatchFollowsDevices(args, config)) SetBatchOfDevices(ranks, &config);
  RETURN_IF_ERROR(Validate(config));
  for (const std::string& text : config.require)
    RETURN_IF_ERROR(Annotate(ParseRequirement(text).status(), "`require`: "));
  return config;
}

std::vector<std::string> DescribeSynonyms(const Arguments& args, int ranks) {
  std::vector<std::string> lines;
  for (const SpecifiedFlag& flag : args.flags) {
    if (flag.written.empty()) continue;
    const bool tells_value = flag.value.empty() || flag.written == flag.name;
    const std::string theirs = StrCat(FormatFlag(flag.written), tells_value ? " " : "", tells_value ? flag.theirs : "");
    const std::string ours = FormatFlag(flag.name);
    lines.push_back(flag.value.empty() ? StrCat(theirs, " leaves ", ours, " out")
                                       : StrCat(theirs, " is ", ours, " ", flag.value));
  }
  const auto config = ParseConfig(args, ranks);
  if (config.ok() && config->batch_size > 0 && config->micro_batch_size > 0 && !IsGiven(args, "batch_size")) {
    const int64_t passes = config->batch_size / config->micro_batch_size;
    lines.push_back(StrCat("--batch-size ", config->batch_size, " follows: ", config->micro_batch_size, " × ", passes,
                           passes == 1 ? " pass" : " passes of all devices together"));
  }
  return lines;
}

std::string FieldsToFlags(std::string_view message) {
  std::string text;
  while (true) {
    const size_t begin = message.find('`');
    const size_t end = begin == std::string_view::npos ? begin : message.find('`', begin + 1);
    if (end == std::string_view::npos) return StrCat(text, message);
    const std::string_view name = message.substr(begin + 1, end - begin - 1);
    const bool field = FindField(name) != nullptr;
    // The closing quote of other text may be the opening quote of a field.
    StrAppend(&text, message.substr(0, begin), field ? FormatFlag(name) : StrCat("`", name));
    message.remove_prefix(field ? end + 1 : end);
  }
}

std::vector<std::string> DefaultFlags(const TrainConfig& config, const TrainConfig& resolved) {
  std::vector<std::string> flags;
  for (const ConfigField& field : ConfigFields()) {
    if (!resolved.specified.contains(field.name) || IsSpecified(config, field.name)) continue;
    const std::string flag = FormatFlag(field.name), value = FirstOrEmpty(FieldTexts(resolved, field));
    if (!field.is_bool()) {
      flags.push_back(StrCat(flag, " ", value));
    } else {
      flags.push_back(value == "true" ? flag : "--no-" + flag.substr(2));
    }
  }
  return flags;
}

void AppendWrapped(const std::string& text, size_t indent, size_t width, std::string* out) {
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    const bool breaks = begin > 0 && column + 1 + CountColumns(word) > width;
    if (breaks) column = indent;
    if (breaks) StrAppend(out, "\n", std::string(indent, ' '));
    StrAppend(out, begin == 0 || breaks ? "" : " ", word);
    column += CountColumns(word) + 1;
    begin = end + 1;
  }
}

std::string HelpName(const ConfigField& field) {
  const std::string flag = FormatFlag(field.name);
  return field.is_bool() ? "--[no-]" + flag.substr(2) : flag;
}

std::string DefaultText(const ConfigField& field) {
  static const TrainConfig kDefaults;
  if (*field.traits.otherwise != 0) return field.traits.otherwise;
  return field.traits.repeatable ? "" : FirstOrEmpty(FieldTexts(kDefaults, field));
}

std::string FlagHelp(unsigned task) {
  std::string text;
  for (const char* group : {"model", "data", "step", "run"}) {
    std::string lines;
    for (const ConfigField& field : ConfigFields()) {
      if ((field.tasks & task) != 0 && std::string_view(field.group) == group) lines += HelpLine(field);
    }
    if (std::string_view(group) == "run") {
      lines +=
          "  --flagfile FILE                     More flags, one a line; typed flags take precedence; repeatable\n"
          "  --config FILE.yaml                  The same as YAML or JSON, by the names of the flags; repeatable\n"
          "  --help, --version\n";
    }
    if (!lines.empty()) StrAppend(&text, "\n", group, "\n", lines);
  }
  return text;
}

namespace {

struct Comparison {
  std::string_view text;
  bool (*met)(double value, double bound);
};
// Longer ones first: ">=" begins with ">".
constexpr Comparison kComparisons[] = {
    {">=", [](double v, double b) { return v >= b; }}, {"<=", [](double v, double b) { return v <= b; }},
    {"==", [](double v, double b) { return v == b; }}, {">", [](double v, double b) { return v > b; }},
    {"<", [](double v, double b) { return v < b; }},
};

std::string Strip(std::string_view text) {
  const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string_view::npos ? "" : std::string(text.substr(first, last - first + 1));
}

bool IsMet(const Requirement& r, double value) {
  for (const Comparison& c : kComparisons) {
    if (c.text == r.comparison) return c.met(value, r.bound);
  }
  return false;
}

}  // namespace

absl::StatusOr<Requirement> ParseRequirement(const std::string& text) {
  const size_t at = text.find_first_of("<>=");
  for (const Comparison& c : kComparisons) {
    if (at == std::string::npos || at == 0 || text.compare(at, c.text.size(), c.text) != 0) continue;
    const auto bound = ParseNumber(Strip(std::string_view(text).substr(at + c.text.size())));
    const std::string metric = Strip(std::string_view(text).substr(0, at));
    if (!bound.ok() || metric.empty()) break;
    return Requirement{metric, std::string(c.text), *bound};
  }
  return Invalid("expected METRIC>=X (or <=, >, <, ==), got '", text, "'");
}

std::vector<std::string> FindUnmetRequirements(const std::vector<Requirement>& requirements, const MetricFn& metric) {
  std::vector<std::string> lines;
  for (const Requirement& r : requirements) {
    const std::optional<double> value = metric(r.metric);
    const std::string wanted = StrCat(", not ", r.comparison, " ", r.bound);
    if (!value.has_value()) {
      lines.push_back(StrCat(r.metric, " has no value", wanted));
    } else if (!IsMet(r, *value)) {
      lines.push_back(StrCat(r.metric, " is ", *value, wanted));
    }
  }
  return lines;
}

}  // namespace onnxtrain::cli
