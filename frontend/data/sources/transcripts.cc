#include "frontend/data/sources/transcripts.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/source.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffixes[] = {".gt.txt", ".txt", ".lab"};
constexpr int64_t kMostBytes = 1 << 20;

std::string WithoutSuffix(const std::string& name) { return fs::path(name).replace_extension().string(); }

// Returns the path of a sample's text; "" if there is none.
std::string FindTranscript(const std::string& folder, const std::string& name) {
  for (const char* suffix : kSuffixes) {
    std::string path = (fs::path(folder) / (WithoutSuffix(name) + suffix)).string();
    if (IsRegularFile(path)) return path;
  }
  return "";
}

}  // namespace

std::string FindTextTable(const std::string& folder) {
  const auto in_folder = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  const auto names = ListFolder(folder);
  if (!names.ok()) return "";
  const auto has = [&](const char* name) { return std::ranges::find(*names, name) != names->end(); };
  for (const char* name : {"metadata.csv", "metadata.jsonl"}) {
    if (has(name)) return in_folder(name);
  }
  const auto is_table = [](const std::string& name) { return HasSuffix(name, {".csv", ".tsv", ".jsonl"}, true); };
  if (std::ranges::count_if(*names, is_table) == 1) return in_folder(*std::ranges::find_if(*names, is_table));
  for (const char* name : {"rec_gt_train.txt", "rec_gt.txt"}) {
    if (has(name)) return "tsv:" + in_folder(name);
  }
  return "";
}

void RemoveTranscripts(const std::vector<std::string>& samples, std::vector<std::string>* others) {
  std::set<std::string> stems;
  for (const std::string& name : samples) stems.insert(WithoutSuffix(name));
  std::erase_if(*others, [&](const std::string& name) {
    return std::ranges::any_of(kSuffixes, [&](std::string_view suffix) {
      return name.ends_with(suffix) && stems.contains(name.substr(0, name.size() - suffix.size()));
    });
  });
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenTranscripts(const std::string& folder,
                                                               const std::vector<std::string>& names) {
  NamedTensor label{.name = "label", .tensor = HostTensor({DType::kUInt8, {std::ssize(names)}})};
  for (const std::string& name : names) {
    const std::string path = FindTranscript(folder, name);
    if (path.empty())
      return Invalid((fs::path(folder) / name).string(), ": has no text beside it (", WithoutSuffix(name), ".txt)");
    ASSIGN_OR_RETURN(label.texts.emplace_back(), ReadTextFile(path, kMostBytes));
  }
  std::vector<NamedTensor> columns;
  columns.push_back(std::move(label));
  return MakeMemoryDataset(std::move(columns), [folder, names](int64_t i) { return FindTranscript(folder, names[i]); });
}

}  // namespace onnxtrain
