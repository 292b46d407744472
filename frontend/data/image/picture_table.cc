#include "frontend/data/image/picture_table.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "frontend/base/status.h"
#include "frontend/data/formats/csv.h"
#include "frontend/data/formats/csv_reader.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/picture_dataset.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

bool IsPictureFile(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  uint8_t start[32] = {};
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(start), sizeof(start));
  return IsPicture({start, static_cast<size_t>(in.gcount())});
}

// The first field of a record that is the path of a picture, or -1.
int FindPicture(const fs::path& folder, const std::vector<std::string>& record) {
  const auto is_picture = [&](const std::string& field) { return !field.empty() && IsPictureFile(folder / field); };
  const auto it = std::ranges::find_if(record, is_picture);
  return it == record.end() ? -1 : static_cast<int>(it - record.begin());
}

int FindColumn(const Dataset& table, const std::string& name) {
  const auto it = std::ranges::find(table.columns(), name, &Column::name);
  return it == table.columns().end() ? -1 : static_cast<int>(it - table.columns().begin());
}

// The path of each sample; "" where it cannot be read.
std::vector<std::string> ReadPaths(const Dataset& table, int c) {
  std::vector<std::string> paths(table.size());
  for (int64_t i = 0; i < table.size(); ++i) {
    paths[i] = table.ReadText(i, c).value_or("");
  }
  return paths;
}

}  // namespace

std::optional<PathColumn> FindPathColumn(const std::string& path, char separator, Header header) {
  auto file = InputFile::Open(path);
  if (!file.ok()) return std::nullopt;
  CsvReader reader(file->reader(), separator);
  std::vector<std::string> first, second;
  if (!reader.Next(&first).value_or(false)) return std::nullopt;
  const fs::path folder = fs::path(path).parent_path();
  if (const int c = FindPicture(folder, first); c >= 0 && header != Header::kYes)
    return PathColumn{.name = StrCat(c), .has_header = false};
  if (header == Header::kNo || !reader.Next(&second).value_or(false)) return std::nullopt;
  const int c = FindPicture(folder, second);
  if (c < 0 || c >= static_cast<int>(first.size())) return std::nullopt;
  return PathColumn{.name = first[c], .has_header = true};
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenPictureTable(const std::string& path, char separator,
                                                                const PathColumn& column, DatasetOptions options) {
  if (options.images.width == 0) return Invalid(path, ": ", options.images.problem);
  options.header = column.has_header ? Header::kYes : Header::kNo;
  options.text.names.insert(column.name);
  auto table = OpenCsv(path, separator, options);
  // The last column is the label unless another one is named; that of paths is none.
  if (table.ok() && options.label.empty() && (*table)->columns().back().name == column.name &&
      (*table)->columns().size() > 1) {
    options.label = {(*table)->columns()[(*table)->columns().size() - 2].name};
    table = OpenCsv(path, separator, options);
  }
  if (!table.ok()) return table;
  const int c = FindColumn(**table, column.name);
  if (c < 0) return Invalid(path, ": there is no column '", column.name, "'");
  if (!(*table)->columns()[c].text) return Invalid(path, ": column '", column.name, "' of paths cannot be the label");
  std::vector<PictureColumn> pictures;
  pictures.push_back({.name = column.name,
                      .options = options.images,
                      .files = FilesInFolder(fs::path(path).parent_path().string(), ReadPaths(**table, c))});
  return MakePictureDataset(std::move(pictures), *table, c, true);
}

}  // namespace onnxtrain
