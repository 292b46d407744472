#include "optim/plan/folders.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_join.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"
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

// Endings of the names of models whose weights have fewer bits, those of the most bits first.
constexpr const char* kFewerBits[] = {"_fp16", "_bf16",  "_quantized", "_int8", "_uint8",
                                      "_q8",   "_q4f16", "_q4",        "_bnb4"};
// Names of the parts of decoders that optimum exports, of which only the first needs no cache.
constexpr const char* kDecoders[] = {"decoder_model", "decoder_model_merged", "decoder_with_past_model"};

std::string StemOf(const std::string& path) { return fs::path(path).stem().string(); }

int CountFewerBits(const std::string& path) {
  const auto* ending = std::ranges::find_if(kFewerBits, [&](const char* end) { return StemOf(path).ends_with(end); });
  return ending == std::end(kFewerBits) ? 0 : 1 + static_cast<int>(ending - kFewerBits);
}

// Returns the models that have the most bits, and only the first part of a decoder.
std::vector<std::string> ListChoices(const std::vector<std::string>& models) {
  int fewest = std::size(kFewerBits);
  for (const std::string& model : models) fewest = std::min(fewest, CountFewerBits(model));
  std::vector<std::string> choices;
  for (const std::string& model : models) {
    if (CountFewerBits(model) == fewest) choices.push_back(model);
  }
  const auto is_decoder = [](const std::string& path) {
    return std::ranges::any_of(kDecoders, [&](const char* name) { return StemOf(path).starts_with(name); });
  };
  if (choices.size() < 2 || !std::ranges::all_of(choices, is_decoder)) return choices;
  std::ranges::sort(choices, {}, [](const std::string& path) { return StemOf(path).size(); });
  return {choices[0]};
}

// Returns the decoder that a genai_config.json names; "" if there is none.
std::string FindGenaiDecoder(const fs::path& folder) {
  const auto text = ReadTextFile((folder / "genai_config.json").string(), int64_t{16} << 20);
  const nlohmann::json config = text.ok() ? ParseJson(*text) : nlohmann::json();
  const auto name = nlohmann::json::json_pointer("/model/decoder/filename");
  if (!config.is_object() || !config.contains(name) || !config[name].is_string()) return "";
  return (folder / fs::path(config[name].get<std::string>()).filename()).string();
}

}  // namespace

absl::StatusOr<FoundModel> FindModelFile(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return FoundModel{path};
  const fs::path folder = path;
  std::vector<std::string> models = ListModels(folder);
  for (std::string& model : ListModels(folder / kSubfolder)) models.push_back(std::move(model));
  if (models.empty()) return Invalid("`model` ", path, ": the folder holds no .onnx file");
  std::vector<std::string> choices = ListChoices(models);
  for (const std::string& usual :
       {(folder / kSubfolder / kUsualName).string(), (folder / kUsualName).string(), FindGenaiDecoder(folder)}) {
    if (fs::is_regular_file(usual, ignored)) choices = {usual};
  }
  if (choices.size() > 1)
    return Invalid("`model` ", path, ": the folder holds several models, name one: ", absl::StrJoin(models, ", "));
  std::erase(models, choices[0]);
  return FoundModel{choices[0], models};
}

namespace {

// Settings that show that a folder is that of a model.
constexpr const char* kMarks[] = {"config.json", "genai_config.json", "tokenizer_config.json",
                                  "preprocessor_config.json"};

bool HasSettings(const fs::path& folder) {
  std::error_code ignored;
  return std::ranges::any_of(kMarks, [&](const char* name) { return fs::is_regular_file(folder / name, ignored); });
}

}  // namespace

std::string FindModelFolder(const std::string& model) {
  if (model.empty()) return "";
  const fs::path folder = FolderOf(model);
  if (HasSettings(folder)) return folder.string();
  std::error_code ignored;
  const fs::path absolute = fs::absolute(folder, ignored).lexically_normal();
  const fs::path named = absolute.has_filename() ? absolute : absolute.parent_path();
  if (named.filename() != kSubfolder || !HasSettings(named.parent_path())) return "";
  return (folder / "..").lexically_normal().string();
}

std::vector<std::string> ReadClassNames(const std::string& model) {
  const std::string folder = FindModelFolder(model);
  if (folder.empty()) return {};
  const auto text = ReadTextFile((fs::path(folder) / "config.json").string(), int64_t{16} << 20);
  const nlohmann::json config = text.ok() ? ParseJson(*text) : nlohmann::json();
  if (!config.is_object() || !config.contains("id2label") || !config["id2label"].is_object()) return {};
  const nlohmann::json& by_id = config["id2label"];
  std::vector<std::string> names;
  bool by_default = true;
  for (size_t i = 0; i < by_id.size(); ++i) {
    const auto name = by_id.find(StrCat(i));
    if (name == by_id.end() || !name->is_string()) return {};
    names.push_back(name->get<std::string>());
    by_default &= names.back() == StrCat("LABEL_", i);
  }
  const bool distinct = std::set<std::string>(names.begin(), names.end()).size() == names.size();
  return by_default || !distinct || names.size() < 2 ? std::vector<std::string>() : names;
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
