// Finds the files of a data set in a folder by the usual names on the Hugging Face Hub.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/arrow/arrow_source.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"
#include "frontend/data/sources/tar.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 3;  // levels of folders to search
constexpr size_t kMostFiles = 100000;

bool IsArrowFile(const std::string& name) { return HasSuffix(name, {".parquet", ".arrow", ".feather"}, false); }

// Lists the files below `folder` with paths relative to the root.
void ListFiles(const fs::path& root, const fs::path& folder, int depth, std::vector<std::string>* files) {
  const auto names = ListFolder((root / folder).string());
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    std::error_code ignored;
    const fs::path path = folder / name;
    if (fs::is_directory(root / path, ignored)) {
      if (depth < kDeepest) ListFiles(root, path, depth + 1, files);
    } else if (IsArrowFile(name) && files->size() < kMostFiles) {
      files->push_back(path.string());
    }
  }
}

// Splits a name at characters other than letters and digits, in lower case.
std::vector<std::string> SplitWords(const std::string& name) {
  std::vector<std::string> words(1);
  for (const unsigned char c : name) {
    if (absl::ascii_isalnum(c)) {
      words.back() += static_cast<char>(absl::ascii_tolower(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

// Returns the part that a word names; "" if it names none.
std::string FindPart(const std::string& word) {
  if (word == "train" || word == "training") return "train";
  return std::ranges::count(kEvalPartNames, word) > 0 ? word : "";
}

// Returns the part in the name of a file or of a folder around it; "train" if none is named.
std::string FindPartOfPath(const fs::path& path) {
  for (fs::path at = path; !at.empty(); at = at.parent_path()) {
    for (const std::string& word : SplitWords(at.stem().string())) {
      if (std::string part = FindPart(word); !part.empty()) return part;
    }
  }
  return "train";
}

// Returns the configuration: the first folder of a path that is neither a part nor "data"; "" if there is none.
std::string FindConfiguration(const fs::path& path) {
  for (const fs::path& folder : path.parent_path()) {
    if (folder != "data" && FindPart(absl::AsciiStrToLower(folder.string())).empty()) return folder.string();
  }
  return "";
}

// Fails if one of the shards that "…-00000-of-00002" announces is missing.
absl::Status CheckShards(const std::string& root, const std::vector<std::string>& files) {
  static const auto* const kShard = new std::regex(R"(^(.*)-(\d{1,9})-of-(\d{1,9})(\..*)$)");
  std::map<std::string, std::pair<int64_t, std::set<std::string>>> shards;
  for (const std::string& file : files) {
    std::smatch match;
    if (!std::regex_match(file, match, *kShard)) continue;
    ASSIGN_OR_RETURN(const int64_t count, ParseInt(match[3].str()));
    auto& [expected, found] = shards[StrCat(match[1].str(), "-of-", match[3].str(), match[4].str())];
    expected = count;
    found.insert(match[2].str());
  }
  for (const auto& [name, shard] : shards) {
    const auto& [expected, found] = shard;
    if (static_cast<int64_t>(found.size()) < expected)
      return Invalid(root, ": ", name, ": there are ", found.size(), " of ", expected, " shards");
  }
  return absl::OkStatus();
}

using Parts = std::map<std::string, std::vector<std::string>>;

Parts FindParts(const std::string& folder, std::set<std::string>* configurations) {
  std::vector<std::string> files;
  ListFiles(folder, "", 0, &files);
  Parts parts;
  for (const std::string& file : files) {
    parts[FindPartOfPath(file)].push_back(file);
    if (configurations != nullptr) configurations->insert(FindConfiguration(file));
  }
  return parts;
}

// Returns the name of the part for evaluation; "" if there is none.
std::string FindEvalPart(const Parts& parts) {
  const auto* found =
      std::ranges::find_if(kEvalPartNames, [&](auto name) { return parts.contains(std::string(name)); });
  return found == std::end(kEvalPartNames) ? "" : std::string(*found);
}

}  // namespace

bool IsArrowFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && !FindParts(path, nullptr).empty();
}

bool HasArrowEvalFiles(const std::string& path) {
  const Parts parts = FindParts(path, nullptr);
  return parts.contains("train") && !FindEvalPart(parts).empty();
}

absl::StatusOr<std::vector<std::string>> FindArrowFiles(const std::string& path, bool eval_split) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return ExpandShards(path);
  std::set<std::string> configurations;
  const Parts parts = FindParts(path, &configurations);
  if (parts.empty()) return Invalid(path, ": there are no .parquet, .arrow or .feather files");
  if (configurations.size() > 1)
    return Invalid(path, ": holds several data sets (", absl::StrJoin(configurations, ", "), "); name one: `data` ",
                   (fs::path(path) / *configurations.rbegin()).string());
  const std::string part = eval_split ? FindEvalPart(parts) : "train";
  const auto& files = parts.contains(part) ? parts.at(part) : parts.begin()->second;
  RETURN_IF_ERROR(CheckShards(path, files));
  std::vector<std::string> paths;
  for (const std::string& file : files) paths.push_back((fs::path(path) / file).string());
  return paths;
}

}  // namespace onnxtrain
