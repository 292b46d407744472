#include "frontend/data/sources/path_finder.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "frontend/base/strings.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFolders = 16;    // beside a table, that are looked into
constexpr size_t kLongestField = 200;  // of a name of a file
constexpr const char* kSuffixes[] = {"",     ".jpg", ".png",  ".jpeg", ".JPG",  ".JPEG", ".PNG",
                                     ".bmp", ".gif", ".webp", ".tif",  ".tiff", ".wav",  ".flac"};

std::vector<std::string> ListFolders(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    if (!name.starts_with('.') && it->is_directory(ignored)) names.push_back(name);
  }
  std::ranges::sort(names);
  if (names.size() > kMostFolders) names.resize(kMostFolders);
  return names;
}

}  // namespace

PathFinder::PathFinder(std::string folder, bool (*is_wanted)(const std::string& path))
    : folder_(std::move(folder)), is_wanted_(is_wanted) {
  std::vector<std::string> prefixes = {""};
  for (const std::string& name : ListFolders(folder_)) prefixes.push_back(name + "/");
  for (const std::string& prefix : prefixes) {
    for (const char* suffix : kSuffixes) patterns_.push_back({prefix, suffix});
  }
}

std::string PathFinder::Find(const std::string& field) {
  if (field.empty() || field.size() > kLongestField || field.find('\n') != std::string::npos) return "";
  for (size_t i = 0; i < patterns_.size(); ++i) {
    const std::string name = StrCat(patterns_[i].prefix, field, patterns_[i].suffix);
    const std::string path = (fs::path(folder_) / name).string();
    if (!IsRegularFile(path) || ((i > 0 || !has_served_) && !is_wanted_(path))) continue;
    std::rotate(patterns_.begin(), patterns_.begin() + static_cast<std::ptrdiff_t>(i),
                patterns_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    has_served_ = true;
    return name;
  }
  return "";
}

bool PathFinder::FindsAll(const std::vector<std::string>& fields) {
  const std::set<std::string> different(fields.begin(), fields.end());
  return different.size() == fields.size() &&
         std::ranges::all_of(fields, [&](const std::string& field) { return !Find(field).empty(); });
}

}  // namespace onnxtrain
