#include "frontend/data/formats/path_table.h"

#include <algorithm>
#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/data/file.h"
#include "frontend/data/formats/csv_reader.h"
#include "frontend/data/formats/jsonl.h"
#include "frontend/data/formats/line_reader.h"
#include "frontend/data/json_reader.h"

namespace onnxtrain {
namespace {

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

}  // namespace

std::optional<PathColumn> FindPathColumn(const std::string& path, char separator, Header header,
                                         bool (*is_wanted)(const std::string& path)) {
  auto file = InputFile::Open(path);
  if (!file.ok()) return std::nullopt;
  CsvReader reader(file->reader(), separator);
  const fs::path folder = fs::path(path).parent_path();
  // The first field of a record that is such a path, or -1.
  const auto find = [&](const std::vector<std::string>& record) {
    const auto it = std::ranges::find_if(
        record, [&](const std::string& field) { return !field.empty() && is_wanted((folder / field).string()); });
    return it == record.end() ? -1 : static_cast<int>(it - record.begin());
  };
  std::vector<std::string> first, second;
  if (!reader.Next(&first).value_or(false)) return std::nullopt;
  if (const int c = find(first); c >= 0 && header != Header::kYes)
    return PathColumn{.name = StrCat(c), .has_header = false};
  if (header == Header::kNo || !reader.Next(&second).value_or(false)) return std::nullopt;
  const int c = find(second);
  if (c < 0 || c >= static_cast<int>(first.size())) return std::nullopt;
  return PathColumn{.name = first[c], .has_header = true};
}

std::optional<PathColumn> FindPathKey(const std::string& path, bool (*is_wanted)(const std::string& path)) {
  const auto lines = OpenAsJsonLines(path, 0);
  if (!lines.ok()) return std::nullopt;
  LineReader reader(*lines);
  std::string line;
  if (!reader.Next(&line).value_or(false)) return std::nullopt;
  const auto object = ParseJsonObject(line);
  if (!object.ok()) return std::nullopt;
  const fs::path folder = fs::path(path).parent_path();
  for (const auto& [key, value] : object->items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : "";
    if (!text.empty() && is_wanted((folder / text).string())) return PathColumn{.name = key, .has_header = true};
  }
  return std::nullopt;
}

absl::StatusOr<PathTable> OpenPathTable(const std::string& path, const OpenTableFn& open, const PathColumn& column,
                                        DatasetOptions options) {
  options.header = column.has_header ? Header::kYes : Header::kNo;
  options.text.names.insert(column.name);
  auto table = open(options);
  // The last column is the label unless another one is named; that of paths is none.
  if (table.ok() && options.label.empty() && (*table)->columns().back().name == column.name &&
      (*table)->columns().size() > 1) {
    options.label = {(*table)->columns()[(*table)->columns().size() - 2].name};
    table = open(options);
  }
  RETURN_IF_ERROR(table.status());
  const int c = FindColumn(**table, column.name);
  if (c < 0) return Invalid(path, ": there is no column '", column.name, "'");
  if (!(*table)->columns()[c].text) return Invalid(path, ": column '", column.name, "' of paths cannot be the label");
  std::vector<std::string> paths = ReadPaths(**table, c);
  return PathTable{*std::move(table), c, fs::path(path).parent_path().string(), std::move(paths)};
}

}  // namespace onnxtrain
