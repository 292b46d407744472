#include "optim/record/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/text/load_tokenizer.h"
#include "frontend/onnx/read/file.h"
#include "optim/plan/folders.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;
using Json = OrderedJson;

constexpr char kConfig[] = "config.json", kPreprocess[] = "preprocess.json", kSubfolder[] = "onnx";
constexpr int64_t kMostConfigBytes = int64_t{64} << 20;

// The settings that programs read beside a model, apart from those of a tokenizer.
constexpr const char* kSettings[] = {
    "config.json",           "genai_config.json",    "preprocessor_config.json",   "generation_config.json",
    "processor_config.json", "quantize_config.json", "audio_processor_config.json"};

std::vector<std::string> ListSettings() {
  std::vector<std::string> names(std::begin(kSettings), std::end(kSettings));
  for (const auto& file : TokenizerFileNames()) names.emplace_back(file.name);
  return names;
}

fs::path FolderOf(const fs::path& file) {
  const fs::path folder = file.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

absl::Status Failed(const fs::path& path, const std::error_code& error) {
  return error ? Invalid(path.string(), ": ", error.message()) : absl::OkStatus();
}

absl::Status CopyFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::remove(to, error);
  fs::copy_file(from, to, error);
  return Failed(to, error);
}

absl::Status CopySettings(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  for (const std::string& name : ListSettings()) {
    if (fs::is_regular_file(from / name, ignored)) RETURN_IF_ERROR(CopyFile(from / name, to / name));
  }
  return absl::OkStatus();
}

// Links a file to its second place, or copies it where that is impossible.
absl::Status LinkFile(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::remove(to, error);
  fs::create_hard_link(from, to, error);
  return error ? CopyFile(from, to) : absl::OkStatus();
}

// Links the model under the name of the original. Copies its external data, which keeps its name, since the model
// refers to it, and is not read through a hard link.
absl::Status LinkModel(const TrainedModel& trained, const fs::path& folder) {
  for (const std::string& file : ListModelFiles(trained.file)) {
    const bool is_model = fs::path(file).filename() == fs::path(trained.file).filename();
    const fs::path name = is_model ? fs::path(trained.original).filename() : fs::path(file).filename();
    RETURN_IF_ERROR(is_model ? LinkFile(file, folder / name) : CopyFile(file, folder / name));
  }
  return absl::OkStatus();
}

// Replaces the names of the classes in config.json.
absl::Status WriteClasses(const std::vector<std::string>& classes, const fs::path& path) {
  std::error_code ignored;
  if (classes.empty() || !fs::exists(path, ignored)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path.string(), kMostConfigBytes));
  Json config = ParseJson<Json>(text);
  if (!config.is_object()) return absl::OkStatus();
  Json by_id = Json::object(), by_label = Json::object();
  for (size_t i = 0; i < classes.size(); ++i) {
    by_id[StrCat(i)] = classes[i];
    by_label[classes[i]] = i;
  }
  config["id2label"] = by_id;
  config["label2id"] = by_label;
  if (config.contains("num_labels")) config["num_labels"] = classes.size();
  return WriteTextFile(path.string(), WriteJson(config, 2) + "\n");
}

// Removes files by name, and the folder if it is empty then.
absl::Status RemoveFrom(const fs::path& folder, const std::function<bool(const fs::path&)>& is_ours) {
  std::error_code error;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (is_ours(entry.path())) files.push_back(entry.path());
  }
  error.clear();  // there may be no folder
  for (const fs::path& file : files) {
    fs::remove(file, error);
    RETURN_IF_ERROR(Failed(file, error));
  }
  fs::remove(folder, error);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteModelFolder(const TrainedModel& trained, const std::string& folder) {
  const fs::path from = FindModelFolder(trained.original);
  std::error_code error;
  const bool in_subfolder = !fs::equivalent(from, FolderOf(trained.original), error);
  const fs::path place = in_subfolder ? fs::path(folder) / kSubfolder : fs::path(folder);
  fs::create_directories(place, error);
  RETURN_IF_ERROR(Failed(place, error));
  RETURN_IF_ERROR(CopySettings(from, folder));
  Preprocess preprocess = trained.preprocess;
  if (trained.tokenizer != nullptr) {
    for (const auto& [name, bytes] : trained.tokenizer->files())
      RETURN_IF_ERROR(WriteTextFile((fs::path(folder) / name).string(), bytes));
    preprocess.text.tokenizer = in_subfolder ? ".." : ".";
  }
  RETURN_IF_ERROR(WriteTextFile((place / kPreprocess).string(), ToJson(preprocess)));
  RETURN_IF_ERROR(WriteClasses(preprocess.classes, fs::path(folder) / kConfig));
  return LinkModel(trained, place);
}

absl::Status RemoveModelFolder(const std::string& folder) {
  const auto is_model = [](const fs::path& path) {
    return path.filename().string().find(".onnx") != std::string::npos || path.filename() == kPreprocess;
  };
  const std::vector<std::string> settings = ListSettings();
  const auto is_ours = [&](const fs::path& path) {
    return is_model(path) || std::ranges::find(settings, path.filename().string()) != settings.end();
  };
  RETURN_IF_ERROR(RemoveFrom(fs::path(folder) / kSubfolder, is_model));
  return RemoveFrom(folder, is_ours);
}

}  // namespace onnxtrain
