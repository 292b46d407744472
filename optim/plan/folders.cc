#include "optim/plan/folders.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr char kSubfolder[] = "onnx", kUsualName[] = "model.onnx";

std::vector<std::string> ListModels(const fs::path& folder) {
  std::vector<std::string> models;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == ".onnx" && it->is_regular_file(ignored)) models.push_back(it->path().string());
  }
  std::ranges::sort(models);
  return models;
}

std::string FolderOf(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

}  // namespace

absl::StatusOr<std::string> FindModelFile(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path;
  const fs::path folder = path;
  for (const fs::path& usual : {folder / kUsualName, folder / kSubfolder / kUsualName}) {
    if (fs::is_regular_file(usual, ignored)) return usual.string();
  }
  std::vector<std::string> models = ListModels(folder);
  for (std::string& model : ListModels(folder / kSubfolder)) models.push_back(std::move(model));
  if (models.size() == 1) return models[0];
  if (models.empty()) return Invalid("`model` ", path, ": the folder holds no .onnx file");
  return Invalid("`model` ", path, ": the folder holds several models, name one: ", absl::StrJoin(models, ", "));
}

std::string FindTokenizerFolder(const std::string& model) {
  if (model.empty()) return "";
  std::string folder = FolderOf(model);
  if (HoldsTokenizer(folder)) return folder;
  if (const fs::path kept = fs::path(folder) / kTokenizerFolder; HoldsTokenizer(kept.string())) return kept.string();
  if (fs::path(folder).filename() != kSubfolder) return "";
  folder = FolderOf(folder);
  return HoldsTokenizer(folder) ? folder : "";
}

namespace {

namespace fs = std::filesystem;

bool IsFolder(const std::string& root, const std::string& name) {
  std::error_code ignored;
  return !name.empty() && fs::is_directory(fs::path(root) / name, ignored);
}

// Returns the text after "NAME=", or the whole text if there is no "=".
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
