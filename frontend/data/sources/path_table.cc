#include "frontend/data/sources/path_table.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/csv.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/json.h"
#include "frontend/data/sources/jsonl.h"
#include "frontend/data/sources/rows.h"

namespace onnxtrain {
namespace {

// Finds the files that the fields of a table name: by their path relative to the folder of the table or to a folder in
// it, with or without the suffix.
class PathFinder {
 public:
  // `is_wanted` returns true for files of the wanted kind.
  PathFinder(std::string folder, bool (*is_wanted)(const std::string& path));

  // Returns the path of the file relative to the folder; "" if there is none.
  std::string Find(const std::string& field);
  // Returns true if all fields name files, each a different one.
  bool FindsAll(const std::vector<std::string>& fields);

 private:
  // The text before and after a field that makes it a path.
  struct Pattern {
    std::string prefix, suffix;
  };

  std::string folder_;
  bool (*is_wanted_)(const std::string& path);
  bool has_served_ = false;
  std::vector<Pattern> patterns_;  // the one that matched last comes first; its files are not opened again
};

namespace fs = std::filesystem;

constexpr size_t kMaxFolders = 16;  // number of folders that are searched

constexpr size_t kLongestField = 200;  // length of a file name

constexpr const char* kSuffixes[] = {"",     ".jpg", ".png",  ".jpeg", ".JPG",  ".JPEG", ".PNG",
                                     ".bmp", ".gif", ".webp", ".tif",  ".tiff", ".wav",  ".flac"};

std::vector<std::string> ListFolders(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    if (!name.starts_with('.') && it->is_directory(ignored)) names.push_back(name);
  }
  std::ranges::sort(names);
  if (names.size() > kMaxFolders) names.resize(kMaxFolders);
  return names;
}

PathFinder::PathFinder(std::string folder, bool (*is_wanted)(const std::string& path))
    : folder_(std::move(folder)), is_wanted_(is_wanted) {
  std::vector<std::string> prefixes = {""};
  for (const std::string& name : ListFolders(folder_)) prefixes.push_back(name + "/");
  for (const std::string& prefix : prefixes) {
    for (const char* suffix : kSuffixes) patterns_.push_back({prefix, suffix});
  }
}

std::string PathFinder::Find(const std::string& field) {
  if (field.empty() || field.size() > kLongestField || field.find('\n') != std::string::npos) return "";
  for (size_t i = 0; i < patterns_.size(); ++i) {
    const std::string name = StrCat(patterns_[i].prefix, field, patterns_[i].suffix);
    const std::string path = (fs::path(folder_) / name).string();
    if (!IsRegularFile(path) || ((i > 0 || !has_served_) && !is_wanted_(path))) continue;
    std::rotate(patterns_.begin(), patterns_.begin() + static_cast<std::ptrdiff_t>(i),
                patterns_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    has_served_ = true;
    return name;
  }
  return "";
}

bool PathFinder::FindsAll(const std::vector<std::string>& fields) {
  const std::set<std::string> different(fields.begin(), fields.end());
  return different.size() == fields.size() &&
         std::ranges::all_of(fields, [&](const std::string& field) { return !Find(field).empty(); });
}

namespace fs = std::filesystem;

int FindColumn(const Dataset& table, const std::string& name) {
  const auto it = std::ranges::find(table.columns(), name, &Column::name);
  return it == table.columns().end() ? -1 : static_cast<int>(it - table.columns().begin());
}

std::vector<std::string> ReadPaths(const Dataset& table, int c) {
  std::vector<std::string> paths(table.size());
  for (int64_t i = 0; i < table.size(); ++i) paths[i] = table.ReadText(i, c).value_or("");
  return paths;
}

using Records = std::vector<std::vector<std::string>>;

constexpr size_t kFirstRows = 16;       // rows that must name files
constexpr size_t kMaxPathColumns = 64;  // columns that are tried

Records ReadFirst(CsvReader reader) {
  Records records;
  std::vector<std::string> record;
  while (records.size() <= kFirstRows && reader.Next(&record).value_or(false)) records.push_back(record);
  return records;
}

// Returns the values of column `c` from row `begin`.
std::vector<std::string> TakeColumn(const Records& records, size_t begin, size_t c) {
  std::vector<std::string> values;
  for (size_t r = begin; r < records.size(); ++r) values.push_back(c < records[r].size() ? records[r][c] : "");
  return values;
}

// Returns the column whose values from row `begin` name files; -1 if there is none.
int FindNamedColumn(const Records& records, size_t begin, PathFinder* finder) {
  if (begin >= records.size()) return -1;
  for (size_t c = 0; c < std::min(records[begin].size(), kMaxPathColumns); ++c) {
    if (finder->FindsAll(TakeColumn(records, begin, c))) return static_cast<int>(c);
  }
  return -1;
}

}  // namespace

std::optional<PathColumn> FindPathColumn(const std::string& path, char separator, const DatasetOptions& options,
                                         bool (*is_wanted)(const std::string& path)) {
  const Header header = options.header;
  auto file = InputFile::Open(path);
  if (!file.ok()) return std::nullopt;
  const Records records = ReadFirst(CsvReader(file->reader(), separator, options.encoding));
  const fs::path folder = fs::path(path).parent_path();
  // Returns the index of the first field of a record that is such a path, or -1.
  const auto find_path = [&](size_t row) {
    if (row >= records.size()) return -1;
    const auto it = std::ranges::find_if(
        records[row], [&](const std::string& field) { return !field.empty() && is_wanted((folder / field).string()); });
    return it == records[row].end() ? -1 : static_cast<int>(it - records[row].begin());
  };
  PathFinder finder(folder.string(), is_wanted);
  const auto find_name = [&](size_t row) { return FindNamedColumn(records, row, &finder); };
  const auto find = [&](auto find_column, bool (*kept)(const std::string&)) -> std::optional<PathColumn> {
    if (const int c = find_column(0); c >= 0 && header != Header::kYes)
      return PathColumn{.name = StrCat(c), .has_header = false, .is_wanted = kept};
    const int c = header == Header::kNo ? -1 : find_column(1);
    if (c < 0 || c >= std::ssize(records[0])) return std::nullopt;
    return PathColumn{.name = records[0][c], .has_header = true, .is_wanted = kept};
  };
  const auto found = find(find_path, nullptr);
  return found.has_value() ? found : find(find_name, is_wanted);
}

std::optional<PathColumn> FindPathKey(const std::string& path, const DatasetOptions& options,
                                      bool (*is_wanted)(const std::string& path)) {
  const auto lines = OpenAsJsonLines(path, options);
  if (!lines.ok()) return std::nullopt;
  LineReader reader(*lines);
  std::string line;
  if (!reader.Next(&line).value_or(false)) return std::nullopt;
  const auto object = ParseJsonObject(line);
  if (!object.ok()) return std::nullopt;
  const fs::path folder = fs::path(path).parent_path();
  PathFinder finder(folder.string(), is_wanted);
  for (const bool by_name : {false, true}) {
    for (const auto& [key, value] : object->items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : "";
      if (text.empty() || !(by_name ? !finder.Find(text).empty() : is_wanted((folder / text).string()))) continue;
      return PathColumn{.name = key, .has_header = true, .is_wanted = by_name ? is_wanted : nullptr};
    }
  }
  return std::nullopt;
}

absl::StatusOr<PathTable> OpenPathTable(const std::string& path, const OpenTableFn& open, const PathColumn& column,
                                        DatasetOptions options) {
  options.header = column.has_header ? Header::kYes : Header::kNo;
  options.text.names.insert(column.name);
  auto table = open(options);
  // The column of paths is not the label: by default it is then the column before.
  if (table.ok() && options.label.empty() && (*table)->columns().back().name == column.name &&
      (*table)->columns().size() > 1) {
    options.label = {(*table)->columns()[(*table)->columns().size() - 2].name};
    table = open(options);
  }
  RETURN_IF_ERROR(table.status());
  const int c = FindColumn(**table, column.name);
  if (c < 0) return Invalid(path, ": there is no column '", column.name, "'");
  if (!(*table)->columns()[c].text) return Invalid(path, ": column '", column.name, "' of paths cannot be the label");
  std::string folder = fs::path(path).parent_path().string();
  std::vector<std::string> paths = ReadPaths(**table, c);
  if (column.is_wanted != nullptr) {
    PathFinder finder(folder, column.is_wanted);
    for (std::string& name : paths) {
      if (std::string found = finder.Find(name); !found.empty()) name = std::move(found);
    }
  }
  return PathTable{*std::move(table), c, std::move(folder), std::move(paths)};
}

}  // namespace onnxtrain
