#include "frontend/data/sources/npz_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"

namespace onnxtrain {
namespace {

enum class Part : uint8_t { kNone, kTrain, kValidation, kTest };

constexpr std::pair<const char*, Part> kWords[] = {
    {"train", Part::kTrain},      {"training", Part::kTrain}, {"val", Part::kValidation},
    {"valid", Part::kValidation}, {"dev", Part::kValidation}, {"validation", Part::kValidation},
    {"test", Part::kTest},        {"testing", Part::kTest},   {"eval", Part::kTest}};

bool IsSeparator(char c) { return c == '_' || c == '-' || c == '.' || c == '/'; }

// "x_train" → (kTrain, "x"), "TrainX" → (kNone, "TrainX")
std::pair<Part, std::string> Divide(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const auto& [text, part] : kWords) {
    const std::string_view word = text;
    if (lower.size() < word.size() + 2) continue;
    const size_t rest = name.size() - word.size();
    if (lower.ends_with(word) && IsSeparator(lower[rest - 1])) return {part, name.substr(0, rest - 1)};
    if (lower.starts_with(word) && IsSeparator(lower[word.size()])) return {part, name.substr(word.size() + 1)};
  }
  return {Part::kNone, name};
}

std::vector<std::string> Columns(const NpzPart& part) {
  std::vector<std::string> columns;
  for (const auto& [array, column] : part) columns.push_back(column);
  std::ranges::sort(columns);
  return columns;
}

}  // namespace

std::optional<NpzPart> FindNpzPart(const std::vector<std::string>& arrays, bool eval_split) {
  std::map<Part, NpzPart> parts;
  for (const std::string& array : arrays) {
    auto [part, column] = Divide(array);
    if (part == Part::kNone) return std::nullopt;
    parts[part].emplace(array, std::move(column));
  }
  const Part evaluation = parts.contains(Part::kValidation) ? Part::kValidation : Part::kTest;
  if (Columns(parts[Part::kTrain]) != Columns(parts[evaluation])) return std::nullopt;
  return parts[eval_split ? evaluation : Part::kTrain];
}

}  // namespace onnxtrain
