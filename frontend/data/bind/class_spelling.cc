#include "frontend/data/bind/class_spelling.h"

#include "absl/strings/ascii.h"
#include "frontend/base/nearest.h"
#include "frontend/base/printable.h"
#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

// Marks that are stripped from both ends of a name. A full stop is stripped from its end alone.
constexpr std::string_view kAround[] = {" ", "\t", "\r", "'", "\"", "`", "\u00a0", "‘", "’", "“", "”"};

bool StripOnce(std::string_view* text) {
  for (const std::string_view part : kAround) {
    if (text->starts_with(part)) return text->remove_prefix(part.size()), true;
    if (text->ends_with(part)) return text->remove_suffix(part.size()), true;
  }
  if (text->ends_with('.')) return text->remove_suffix(1), true;
  return false;
}

// The part of a name by which spellings agree.
std::string CommonForm(std::string_view name) {
  while (StripOnce(&name)) continue;
  return absl::AsciiStrToLower(ToAbsl(name));
}

}  // namespace

ClassSpellings::ClassSpellings(std::vector<std::string> classes) : classes_(std::move(classes)) {
  for (const std::string& name : classes_) {
    const auto [it, added] = by_form_.emplace(CommonForm(name), name);
    if (!added) it->second.clear();
  }
}

std::string ClassSpellings::Find(std::string_view name) const {
  const std::string form = CommonForm(name);
  const auto it = by_form_.find(form);
  return form.empty() || it == by_form_.end() ? "" : it->second;
}

std::pair<std::string, std::string> FindTwoSpellings(const std::vector<std::string>& names) {
  std::unordered_map<std::string, std::string> by_form;
  for (const std::string& name : names) {
    const auto [it, added] = by_form.emplace(CommonForm(name), name);
    if (!added) return {it->second, name};
  }
  return {};
}

std::string ClassSpellings::Suggest(std::string_view name) const {
  constexpr size_t kShortest = 3;  // any two shorter names are near
  const std::string near = name.size() < kShortest ? "" : Nearest(name, classes_);
  return near.empty() ? "" : StrCat("; did you mean '", Printable(near), "'?");
}

}  // namespace onnxtrain
