#include "optim/weight_globs.h"

#include <fnmatch.h>

#include <algorithm>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

bool Glob(const std::string& pattern, const std::string& text) {
  return pattern == text || fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

std::vector<std::string> Split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void AddPrefixes(std::string_view name, char at, std::vector<std::string>* modules) {
  for (size_t end = name.find(at, 1); end != std::string_view::npos; end = name.find(at, end + 1)) {
    modules->emplace_back(name.substr(0, end));
  }
}

// Joins the scopes of a path with dots. A scope that begins with the one before it replaces it.
std::string Dotted(const std::vector<std::string>& scopes) {
  std::string path, last;
  for (const std::string& scope : scopes) {
    const bool repeats = !last.empty() && scope.starts_with(last + ".");
    if (repeats) path.resize(path.size() - last.size());
    StrAppend(&path, path.empty() || repeats ? "" : ".", scope);
    last = scope;
  }
  return path;
}

}  // namespace

std::vector<std::string> ListModules(std::string_view name) {
  std::vector<std::string> modules;
  if (name.find('/') == std::string_view::npos) {
    AddPrefixes(name, '.', &modules);
    return modules;
  }
  AddPrefixes(name, '/', &modules);
  std::vector<std::string> scopes = Split(name, '/');
  scopes.pop_back();  // the operator or weight name
  const std::string dotted = Dotted(scopes);
  AddPrefixes(dotted, '.', &modules);
  if (!dotted.empty()) modules.push_back(dotted);
  return modules;
}

bool MatchesWeight(const std::string& pattern, const std::string& name, const std::string& consumer) {
  const std::string node = consumer.substr(consumer.find(' ') + 1);
  if (Glob(pattern, name) || Glob(pattern, consumer) || (!node.empty() && Glob(pattern, node))) return true;
  const auto matches = [&](const std::string& module) { return Glob(pattern, module); };
  const std::vector<std::string> own = ListModules(name), nodes = ListModules(node);
  return std::any_of(own.begin(), own.end(), matches) || std::any_of(nodes.begin(), nodes.end(), matches);
}

const std::string* WeightGlobs::Match(const std::string& name, const std::string& consumer) {
  const std::string* first = nullptr;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    if (!MatchesWeight(patterns_[i], name, consumer)) continue;
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
