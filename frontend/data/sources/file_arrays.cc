#include "frontend/data/sources/file_arrays.h"

#include <cstring>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/memory_dataset.h"

namespace onnxtrain {
namespace {

class FileArrays : public Dataset {
 public:
  FileArrays(std::string path, std::shared_ptr<const RandomFile> file, std::vector<FileArray> arrays,
             std::vector<Column> columns)
      : path_(std::move(path)), file_(std::move(file)), arrays_(std::move(arrays)), columns_(std::move(columns)) {}

  int64_t size() const override { return arrays_[0].type.shape[0]; }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return StrCat(path_, ": sample ", i); }

  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    return ReadRange(i, 1, c, out);
  }
  absl::Status ReadRange(int64_t first, int64_t count, int c, std::span<std::byte> out) const override {
    CHECK(c >= 0 && c < static_cast<int>(columns_.size()) && first >= 0 && first + count <= size());
    if (!columns_[c].problem.empty()) return Invalid(columns_[c].problem);
    const auto width = static_cast<int64_t>(columns_[c].sample.bytes());
    CHECK_EQ(static_cast<int64_t>(out.size()), count * width);
    const FileArray& array = arrays_[c];
    const int64_t at = first * width;
    if (array.held.has_value()) {
      if (!out.empty()) std::memcpy(out.data(), array.held->bytes().data() + at, out.size());
      return absl::OkStatus();
    }
    const absl::Status read = file_->ReadAt(array.offset + at, out);
    if (!read.ok()) return Annotate(read, StrCat(Describe(first), ": "));
    if (array.big_endian) SwapBytes(out, DTypeSize(array.type.dtype));
    if (array.type.dtype == DType::kBool) {
      for (std::byte& b : out) b = static_cast<std::byte>(b != std::byte{0});
    }
    return absl::OkStatus();
  }

 private:
  std::string path_;
  std::shared_ptr<const RandomFile> file_;
  std::vector<FileArray> arrays_;
  std::vector<Column> columns_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> MakeFileDataset(const std::string& path,
                                                               std::shared_ptr<const RandomFile> file,
                                                               std::vector<FileArray> arrays) {
  if (arrays.empty()) return Invalid("there are no arrays");
  std::vector<Column> columns;
  for (const FileArray& array : arrays) {
    ASSIGN_OR_RETURN(Column column, MakeColumn(array.name, array.type));
    const int64_t n = array.type.shape[0], first = arrays[0].type.shape[0];
    if (n != first) return Invalid("'", arrays[0].name, "' has ", first, " samples, '", array.name, "' has ", n);
    column.classes = array.classes;
    column.problem = array.problem;
    columns.push_back(std::move(column));
  }
  return std::make_shared<FileArrays>(path, std::move(file), std::move(arrays), std::move(columns));
}

}  // namespace onnxtrain
