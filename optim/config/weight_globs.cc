#include "optim/config/weight_globs.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>

#include "frontend/base/status.h"
#include "frontend/onnx/recover/module_path.h"

namespace onnxtrain {
namespace {

bool Glob(const std::string& pattern, const std::string& text) {
  return pattern == text || fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

void AddPrefixes(std::string_view name, char at, std::vector<std::string>* modules) {
  for (size_t end = name.find(at, 1); end != std::string_view::npos; end = name.find(at, end + 1)) {
    modules->emplace_back(name.substr(0, end));
  }
}

}  // namespace

std::vector<std::string> ListModules(std::string_view name) {
  std::vector<std::string> modules;
  if (name.find('/') == std::string_view::npos) {
    AddPrefixes(name, '.', &modules);
    return modules;
  }
  AddPrefixes(name, '/', &modules);
  const std::string dotted = DottedModule(name);
  AddPrefixes(dotted, '.', &modules);
  if (!dotted.empty()) modules.push_back(dotted);
  return modules;
}

bool MatchesWeight(const std::string& pattern, const std::string& name, const std::string& consumer,
                   const std::string& alias) {
  const std::string node = consumer.substr(consumer.find(' ') + 1);
  if (Glob(pattern, consumer)) return true;
  const auto matches = [&](const std::string& module) { return Glob(pattern, module); };
  return std::ranges::any_of(std::array{name, node, alias}, [&](const std::string& own) {
    return !own.empty() && (Glob(pattern, own) || std::ranges::any_of(ListModules(own), matches));
  });
}

const std::string* WeightGlobs::Match(const std::string& name, const std::string& consumer, const std::string& alias) {
  const std::string* first = nullptr;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (!MatchesWeight(patterns_[i], name, consumer, alias)) continue;
    ++match_counts_[i];
    if (first == nullptr) first = &patterns_[i];
  }
  return first;
}

absl::Status WeightGlobs::CheckAllMatched() const {
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (match_counts_[i] == 0)
      return Invalid("`", field_, "` ", patterns_[i], ": matches no weight, node or module (see inspect)");
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
