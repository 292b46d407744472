#include "frontend/data/bind/class_map.h"

#include <algorithm>
#include <set>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/csv_reader.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxClasses = 1 << 24;

struct Row {
  std::string name;
  int64_t index, row;
};

absl::StatusOr<std::vector<Row>> ReadRows(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CsvReader reader(file.reader(), ',');
  std::vector<Row> rows;
  std::vector<std::string> fields;
  size_t width = 0;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader.Next(&fields));
    if (!more) return rows;
    if (width == 0) width = fields.size();
    if (fields.size() != width || width > 2)
      return Invalid("row ", reader.row(), ": expected a name, or name,index, as in every row");
    int64_t index = static_cast<int64_t>(rows.size());
    if (width == 2) {
      const auto number = ParseInt(fields[1]);
      if (!number.ok() || *number < 0 || *number >= kMaxClasses)
        return Invalid("row ", reader.row(), ": '", fields[1], "' is no index of a class");
      index = *number;
    }
    rows.push_back({fields[0], index, reader.row()});
  }
}

absl::StatusOr<std::vector<std::string>> OrderNames(const std::vector<Row>& rows) {
  if (rows.empty()) return Invalid("there are no classes");
  std::vector<std::string> names(rows.size());
  std::vector<bool> seen(rows.size(), false);
  std::set<std::string> distinct;
  for (const Row& row : rows) {
    if (row.index >= static_cast<int64_t>(rows.size()) || seen[row.index])
      return Invalid("row ", row.row, ": index ", row.index,
                     row.index < static_cast<int64_t>(rows.size())
                         ? " occurs twice"
                         : StrCat(" is not below the ", rows.size(), " classes"));
    if (row.name.empty() || !distinct.insert(row.name).second)
      return Invalid("row ", row.row, ": the name '", row.name, row.name.empty() ? "' is empty" : "' occurs twice");
    seen[row.index] = true;
    names[row.index] = row.name;
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadClassMap(const std::string& path) {
  RETURN_IF_ERROR(RegularFileSize(path).status());
  const auto rows = ReadRows(path);
  if (!rows.ok()) return Annotate(rows.status(), StrCat(path, ": "));
  auto names = OrderNames(*rows);
  if (!names.ok()) return Annotate(names.status(), StrCat(path, ": "));
  return names;
}

}  // namespace onnxtrain
