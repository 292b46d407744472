#include "frontend/data/sources/folder.h"

#include <algorithm>
#include <filesystem>

#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with('.')) names.push_back(std::move(name));
  }
  if (error) return Invalid(path, ": ", error.message());
  std::ranges::sort(names);
  return names;
}

}  // namespace onnxtrain
