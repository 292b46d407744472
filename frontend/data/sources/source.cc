#include "frontend/data/sources/source.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <ranges>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/foreign.h"
#include "frontend/data/sources/rows.h"

namespace onnxtrain {
namespace {

using Row = std::shared_ptr<const Source>;

// All sources, in the order in which they are asked.
class Registry {
 public:
  static Registry& Get() {
    static auto* registry = new Registry;  // never destroyed: other threads may open data at exit
    return *registry;
  }

  absl::Status Add(Source source) {
    const auto in_name = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; };
    if (source.name.empty() || !std::ranges::all_of(source.name, in_name))
      return Invalid("source '", source.name, "': a name consists of letters, digits and '_'");
    if (source.open == nullptr) return Invalid("source '", source.name, "': it has no `open`");
    std::lock_guard lock(mutex_);
    if (std::ranges::any_of(rows_, [&](const Row& row) { return row->name == source.name; }))
      return absl::AlreadyExistsError(StrCat("source '", source.name, "': the name is taken"));
    rows_.insert(rows_.begin(), std::make_shared<const Source>(std::move(source)));
    return absl::OkStatus();
  }

  std::vector<Row> rows() const {
    std::lock_guard lock(mutex_);
    return rows_;
  }

 private:
  Registry() {
    for (Source& row : BuiltInSources()) rows_.push_back(std::make_shared<const Source>(std::move(row)));
  }

  mutable std::mutex mutex_;
  std::vector<Row> rows_;
};

template <typename Condition>
Row FindRow(const std::vector<Row>& rows, Condition condition) {
  const auto row = std::ranges::find_if(rows, [&](const Row& r) { return condition(*r); });
  return row == rows.end() ? nullptr : *row;
}

// The source that the path names. A file of the whole path's name comes first.
FoundSource FindNamed(const std::vector<Row>& rows, const std::string& path) {
  const size_t colon = path.find(':');
  std::error_code ignored;
  if (colon == std::string::npos || std::filesystem::exists(path, ignored)) return {};
  const std::string name = path.substr(0, colon);
  return {FindRow(rows, [&](const Source& s) { return s.name == name; }), path.substr(colon + 1)};
}

std::string ListKinds(const std::vector<Row>& rows) {
  std::vector<std::string> kinds;
  for (const Row& row : rows) {
    if (!row->what.empty()) kinds.push_back(row->what);  // else only a name selects it
  }
  return absl::StrJoin(kinds, ", ");
}

}  // namespace

absl::Status RegisterSource(Source source) { return Registry::Get().Add(std::move(source)); }

absl::StatusOr<FoundSource> FindSource(const std::string& path) {
  const std::vector<Row> rows = Registry::Get().rows();
  if (FoundSource named = FindNamed(rows, path); named.source != nullptr) return named;
  Row row = FindRow(rows, [&](const Source& s) { return HasSuffix(path, s.suffixes, s.packed); });
  if (row == nullptr)
    row = FindRow(rows, [&](const Source& s) { return s.recognizes != nullptr && s.recognizes(path); });
  if (row != nullptr) return FoundSource{std::move(row), path};
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) RETURN_IF_ERROR(RegularFileSize(path).status());
  if (const std::string advice = AdviseConversion(path); !advice.empty()) return Invalid(path, ": ", advice);
  return Invalid(path, ": not a known kind of data (", ListKinds(rows), "); csv:", path,
                 " reads it as a table, whatever its name");
}

std::string SourcePath(const std::string& path) {
  FoundSource named = FindNamed(Registry::Get().rows(), path);
  return named.source == nullptr ? path : named.path;
}

bool HasSuffix(std::string_view path, const std::vector<std::string>& suffixes, bool packed) {
  const std::string lower = absl::AsciiStrToLower({path.data(), path.size()});
  std::string_view name = lower;
  for (const std::string_view packing : {".gz", ".zst"}) {
    if (packed && name.ends_with(packing)) name.remove_suffix(packing.size());
  }
  return std::ranges::any_of(suffixes, [&](const std::string& suffix) { return name.ends_with(suffix); });
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const std::string& path, const DatasetOptions& options) {
  if (path.empty()) return Invalid("the path of the data is empty");
  ASSIGN_OR_RETURN(const FoundSource found, FindSource(path));
  return found.source->open(found.path, options);
}

}  // namespace onnxtrain
