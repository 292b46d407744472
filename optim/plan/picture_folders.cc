#include "optim/plan/picture_folders.h"

#include <algorithm>
#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

bool IsFolder(const std::string& root, const std::string& name) {
  std::error_code ignored;
  return !name.empty() && fs::is_directory(fs::path(root) / name, ignored);
}

// What is behind "NAME=", or all of the text.
std::string AfterName(const std::string& text) {
  const size_t equal = text.find('=');
  return equal == std::string::npos ? text : text.substr(equal + 1);
}

void AddInputs(const TrainConfig& config, const std::string& root, std::vector<FolderColumn>* folders) {
  for (const std::string& text : config.input) {
    const std::string folder = AfterName(text);
    if (IsFolder(root, folder)) folders->push_back({.name = folder, .folder = folder});
  }
}

void AddLabels(const TrainConfig& config, const std::string& root, std::vector<FolderColumn>* folders) {
  for (const std::string& text : config.label) {
    const std::string folder = AfterName(text), name = text.substr(0, text.find('='));
    if (IsFolder(root, folder)) folders->push_back({.name = name, .folder = folder, .kind = PictureKind::kMask});
  }
}

}  // namespace

TrainConfig WithFolderRoot(TrainConfig config) {
  if (config.data.empty() && !FindFolderColumns(config, std::nullopt, ".", true).empty()) {
    config.data = std::string(1, '.');  // a literal draws a false warning of GCC 12
    config.specified.emplace("data");
  }
  return config;
}

absl::Status CheckNamesNoArrayFile(const TrainConfig& config) {
  for (const auto& [field, texts] : {std::pair("input", &config.input), std::pair("label", &config.label)}) {
    for (const std::string& text : *texts) {
      const fs::path file = AfterName(text);
      if (file.extension() != ".npy" || !IsRegularFile(file.string()) || file.string().starts_with('@')) continue;
      const bool packed = config.data.empty() || fs::path(config.data).extension() == ".npy";
      if (!packed) continue;
      const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
      return Invalid("`", field, "` ", text, ": names a file, but is to name a column: `data` ", folder,
                     " takes the .npy files of a folder as columns, here '", file.stem().string(), "'");
    }
  }
  return absl::OkStatus();
}

std::vector<FolderColumn> FindFolderColumns(const TrainConfig& config, const std::optional<Preprocess>& before,
                                            const std::string& root, bool want_label) {
  std::vector<FolderColumn> folders;
  AddInputs(config, root, &folders);
  if (want_label) AddLabels(config, root, &folders);
  if (!folders.empty() || !before.has_value() || !before->pictures.has_value()) return folders;
  for (const PicturePreprocess::Folder& f : before->pictures->folders) {
    if (f.mask && !want_label) continue;
    const bool itself = !want_label && !IsFolder(root, f.folder);
    folders.push_back({f.column, itself ? "" : f.folder, f.mask ? PictureKind::kMask : PictureKind::kColors});
  }
  return folders;
}

TrainConfig WithLabelColumns(TrainConfig config) {
  for (std::string& label : config.label) {
    const size_t equal = label.find('=');
    if (equal != std::string::npos && IsFolder(config.data, label.substr(equal + 1))) label.resize(equal);
  }
  return config;
}

}  // namespace onnxtrain
