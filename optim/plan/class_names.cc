#include "optim/plan/class_names.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/text/alphabet.h"
#include "frontend/data/text/yaml_list.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// Models of PP-OCR read pixels from -1 to 1 in the channel order of OpenCV (RecResizeImg, DecodeImage).
PictureForm MakePaddleForm(int64_t height) {
  return {.normalize = "0.5/0.5", .channel_order = "bgr", .height = height};
}

// Returns the characters in the metadata of models of PP-OCR, one per line.
std::vector<std::string> CharactersInMetadata(const OnnxModel& model) {
  const std::string& text = FindModelMetadata(model, "character");
  if (text.empty()) return {};
  std::vector<std::string> names = absl::StrSplit(text, '\n');
  for (std::string& name : names) {
    if (name.ends_with('\r')) name.pop_back();
  }
  while (!names.empty() && names.back().empty()) names.pop_back();
  return names;
}

// Returns the form of the pictures in the inference.yml of PP-OCR.
PictureForm ReadPaddleForm(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  const auto text = ReadTextFile(path, kMostBytes);
  if (!text.ok() || !absl::StrContains(*text, "RecResizeImg:")) return {};
  const auto shape = ListInYaml(*text, "image_shape");  // [3, 48, 320]
  const bool known = shape.ok() && shape->size() == 3;
  return MakePaddleForm(known ? ParseInt(shape->at(1)).value_or(0) : 0);
}

// A file beside a model. NeMo and DeepSpeech put the blank after the characters.
struct NamedFile {
  const char* name;
  bool blank_is_last = false;
};
constexpr const char* kPaddleFile = "inference.yml";
constexpr NamedFile kFiles[] = {{kPaddleFile},          {"vocab.json"}, {"tokens.txt", true},   {"vocab.txt", true},
                                {"labels.json"},        {"labels.txt"}, {"alphabet.txt", true}, {"charsets.json"},
                                {"character_dict.txt"}, {"dict.txt"}};

// Returns true for ppocr_keys_v1.txt, ppocrv5_dict.txt, ….
bool IsPaddleDictionary(std::string_view name) { return name.starts_with("ppocr") && name.ends_with(".txt"); }

// Returns the one dictionary of PP-OCR in a folder; "" if there are none or several.
std::string FindPaddleDictionary(const fs::path& folder) {
  std::string found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (!IsPaddleDictionary(entry.path().filename().string())) continue;
    if (!found.empty()) return "";
    found = entry.path().string();
  }
  return found;
}

absl::StatusOr<ClassNames> ReadNamesFile(const std::string& path, bool blank_is_last) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ReadAlphabetNames(path));
  return ClassNames{.names = std::move(names), .where = path, .blank_is_last = blank_is_last};
}

constexpr const char* kMetadata = "the model's metadata (character)";

absl::StatusOr<ClassNames> FindNames(const TrainConfig& config, const OnnxModel& model, const fs::path& folder) {
  if (!config.class_map.empty()) {
    auto found = ReadNamesFile(config.class_map, false);
    return found.ok() ? found : Annotate(found.status(), "`class_map`: ");
  }
  if (std::vector<std::string> names = CharactersInMetadata(model); !names.empty())
    return ClassNames{.names = std::move(names), .where = kMetadata};
  if (model.in_memory()) return ClassNames();
  for (const NamedFile& file : kFiles) {
    const std::string path = (folder / file.name).string();
    if (IsRegularFile(path)) return ReadNamesFile(path, file.blank_is_last);
  }
  const std::string dictionary = FindPaddleDictionary(folder);
  return dictionary.empty() ? ClassNames() : ReadNamesFile(dictionary, false);
}

}  // namespace

absl::StatusOr<std::optional<ClassNames>> FindClassNames(const TrainConfig& config, const OnnxModel& model) {
  const fs::path parent = fs::path(model.path()).parent_path(), folder = parent.empty() ? "." : parent;
  ASSIGN_OR_RETURN(ClassNames found, FindNames(config, model, folder));
  if (found.names.empty()) return std::nullopt;
  const std::string inference = (folder / kPaddleFile).string();
  if (!model.in_memory() && IsRegularFile(inference)) {
    found.pictures = ReadPaddleForm(inference);
  } else if (found.where == kMetadata || IsPaddleDictionary(fs::path(found.where).filename().string())) {
    found.pictures = MakePaddleForm(0);
  }
  return found;
}

}  // namespace onnxtrain
