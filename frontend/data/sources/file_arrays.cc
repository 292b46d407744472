#include "frontend/data/sources/file_arrays.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"

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

namespace {

enum class Part : uint8_t { kNone, kTrain, kValidation, kTest };

constexpr std::pair<const char*, Part> kWords[] = {
    {"train", Part::kTrain},      {"training", Part::kTrain}, {"val", Part::kValidation},
    {"valid", Part::kValidation}, {"dev", Part::kValidation}, {"validation", Part::kValidation},
    {"test", Part::kTest},        {"testing", Part::kTest},   {"eval", Part::kTest}};

bool IsSeparator(char c) { return c == '_' || c == '-' || c == '.' || c == '/'; }

// Splits a name into part and column: "x_train" → (kTrain, "x"), "TrainX" → (kNone, "TrainX").
std::pair<Part, std::string> Divide(const std::string& name) {
  const std::string lower = absl::AsciiStrToLower(name);
  for (const auto& [text, part] : kWords) {
    const std::string_view word = text;
    if (lower.size() < word.size() + 2) continue;
    const size_t rest = name.size() - word.size();
    if (lower.ends_with(word) && IsSeparator(lower[rest - 1])) return {part, name.substr(0, rest - 1)};
    if (lower.starts_with(word) && IsSeparator(lower[word.size()])) return {part, name.substr(word.size() + 1)};
  }
  return {Part::kNone, name};
}

std::vector<std::string> Columns(const NpzPart& part) {
  std::vector<std::string> columns;
  for (const auto& [array, column] : part) columns.push_back(column);
  std::ranges::sort(columns);
  return columns;
}

}  // namespace

std::optional<NpzPart> FindNpzPart(const std::vector<std::string>& arrays, bool eval_split) {
  std::map<Part, NpzPart> parts;
  for (const std::string& array : arrays) {
    auto [part, column] = Divide(array);
    if (part == Part::kNone) return std::nullopt;
    parts[part].emplace(array, std::move(column));
  }
  const Part evaluation = parts.contains(Part::kValidation) ? Part::kValidation : Part::kTest;
  if (Columns(parts[Part::kTrain]) != Columns(parts[evaluation])) return std::nullopt;
  return parts[eval_split ? evaluation : Part::kTrain];
}

}  // namespace onnxtrain
