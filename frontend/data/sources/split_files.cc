#include "frontend/data/sources/split_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/sources/csv_reader.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/jsonl.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOnlyShard = "-00000-of-00001";  // as Hugging Face's data sets are stored

constexpr std::string_view kTables[] = {"csv", "tsv", "jsonl"};
constexpr std::string_view kOthers[] = {"npz", "safetensors", "text", "tokens", "tar"};

std::string SourceOf(const std::string& path) {
  const auto found = FindSource(path);
  return found.ok() ? found->source->name : "";
}
bool IsTable(const std::string& path) { return std::ranges::count(kTables, SourceOf(path)) > 0; }
bool IsSplit(const std::string& path) { return IsTable(path) || std::ranges::count(kOthers, SourceOf(path)) > 0; }

// "train" of "Train.csv.gz" and of "train-00000-of-00001.jsonl".
std::string FindStem(const std::string& name) {
  std::string stem = absl::AsciiStrToLower(name.substr(0, name.find('.')));
  if (stem.ends_with(kOnlyShard)) stem.resize(stem.size() - kOnlyShard.size());
  return stem;
}

// The path of the file of that stem, rather with the suffix of `like`; "" where there is none, or several.
std::string FindFile(const fs::path& folder, const std::vector<std::string>& names, std::string_view stem,
                     const std::string& like) {
  std::vector<std::string> found;
  const std::string suffix = fs::path(like).extension().string();
  for (const std::string& name : names) {
    if (FindStem(name) == stem && IsSplit((folder / name).string())) found.push_back((folder / name).string());
  }
  if (found.size() > 1) std::erase_if(found, [&](const std::string& path) { return !path.ends_with(suffix); });
  return found.size() == 1 ? found[0] : "";
}

// The only table in a folder that is nothing else.
std::string FindOnlyTable(const std::string& folder, const std::vector<std::string>& names) {
  std::string found;
  if (!SourceOf(folder).empty()) return "";
  for (const std::string& name : names) {
    const std::string path = (fs::path(folder) / name).string();
    if (!IsTable(path)) continue;
    if (!found.empty()) return "";
    found = path;
  }
  return found;
}

// The names of the columns of a table, or how many there are without names; empty for other files.
std::multiset<std::string> ReadColumns(const std::string& path) {
  std::vector<std::string> names;
  if (HasSuffix(path, {".csv", ".data", ".dat", ".tsv", ".tab"}, true)) {
    auto file = InputFile::Open(path);
    if (!file.ok() || !CsvReader(file->reader(), ',').Next(&names).value_or(false)) return {};
  } else if (HasSuffix(path, {".jsonl", ".ndjson", ".json"}, true)) {
    const auto lines = OpenAsJsonLines(path, 0, "");
    std::string line;
    if (!lines.ok() || !LineReader(*lines).Next(&line).value_or(false)) return {};
    const auto object = ParseJsonObject(line);
    if (!object.ok()) return {};
    for (const auto& [key, value] : object->items()) names.push_back(key);
  }
  return {names.begin(), names.end()};
}

// Has the table what the other has? Rows without a header have as many fields.
bool HasColumnsOf(const std::string& path, const std::string& other) {
  const auto own = ReadColumns(path), wanted = ReadColumns(other);
  return own.size() == wanted.size() || std::ranges::includes(own, wanted);
}

bool HoldsFolders(const fs::path& path) {
  std::error_code ignored;
  const fs::directory_iterator entries(path, ignored);
  return std::any_of(begin(entries), end(entries), [](const auto& entry) {
    std::error_code none;
    return entry.is_directory(none);
  });
}

}  // namespace

std::optional<SplitFiles> FindSplitFiles(const std::string& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored) || HoldsFolders(fs::path(folder) / "train")) return std::nullopt;
  const auto names = ListFolder(folder);
  if (!names.ok()) return std::nullopt;
  SplitFiles files{.train = FindFile(folder, *names, "train", ""), .eval = {}, .test = {}};
  if (files.train.empty()) files.train = FindOnlyTable(folder, *names);
  if (files.train.empty()) return std::nullopt;
  for (const std::string_view part : kEvalPartNames) {
    const std::string path = FindFile(folder, *names, part, files.train);
    if (path.empty() || path == files.train) continue;
    std::string& place = HasColumnsOf(path, files.train) ? files.eval : files.test;
    if (place.empty()) place = path;
  }
  return files;
}

}  // namespace onnxtrain
