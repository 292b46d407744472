#include "optim/plan/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
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

}  // namespace onnxtrain
