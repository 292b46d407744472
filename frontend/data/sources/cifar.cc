#include "frontend/data/sources/rows.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_split.h"
#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPixels = 3 * 32 * 32;
constexpr int64_t kMaxNames = 1 << 16;  // limit in bytes

struct Labels {
  const char *column, *names;  // names: file of class names
};

// The files of CIFAR-10 or CIFAR-100.
struct CifarFiles {
  std::vector<std::string> train, test;
  std::vector<Labels> labels;  // one entry per label byte of a row

  int64_t row_bytes() const { return static_cast<int64_t>(labels.size()) + kPixels; }
};

const CifarFiles& Cifar10() {
  static const auto* files = new CifarFiles{
      {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
      {"test_batch.bin"},
      {{"label", "batches.meta.txt"}}};
  return *files;
}
const CifarFiles& Cifar100() {
  static const auto* files = new CifarFiles{
      {"train.bin"}, {"test.bin"}, {{"coarse_label", "coarse_label_names.txt"}, {"label", "fine_label_names.txt"}}};
  return *files;
}

bool HasFile(const fs::path& folder, const std::string& name) { return IsRegularFile((folder / name).string()); }

const CifarFiles* FindFiles(const fs::path& folder) {
  if (HasFile(folder, "data_batch_1.bin")) return &Cifar10();
  return HasFile(folder, "train.bin") && HasFile(folder, "fine_label_names.txt") ? &Cifar100() : nullptr;
}

// Appends the rows of one file to `rows`.
absl::Status AppendRows(const std::string& path, int64_t row_bytes, int64_t max_bytes, std::vector<std::byte>* rows) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  if (size == 0 || size % row_bytes != 0)
    return Invalid(path, ": ", size, " bytes are no whole number of rows of ", row_bytes);
  const size_t before = rows->size();
  RETURN_IF_ERROR(Annotate(CheckMemory(2 * (static_cast<int64_t>(before) + size), max_bytes), StrCat(path, ": ")));
  rows->resize(before + size);
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  return Annotate(ReadExactly(file.reader(), std::span(*rows).subspan(before)), StrCat(path, ": "));
}

// Returns the lines of a file of class names; none if it does not exist.
absl::StatusOr<std::vector<std::string>> ReadNames(const fs::path& folder, const char* file) {
  if (!HasFile(folder, file)) return std::vector<std::string>();
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile((folder / file).string(), kMaxNames));
  return std::vector<std::string>(absl::StrSplit(text, absl::ByAnyChar("\r\n"), absl::SkipEmpty()));
}

absl::StatusOr<NamedTensor> MakeLabels(const fs::path& folder, const Labels& labels, std::vector<int64_t> values) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ReadNames(folder, labels.names));
  const int64_t most = *std::ranges::max_element(values);
  if (!names.empty() && most >= static_cast<int64_t>(names.size()))
    return Invalid((folder / labels.names).string(), ": ", names.size(), " names, but there is a label ", most);
  return NamedTensor{labels.column, HostTensor::FromInts(values), std::move(names)};
}

}  // namespace

bool IsCifarFolder(const std::string& path) { return FindFiles(path) != nullptr; }

bool HasCifarEvalFiles(const std::string& path) {
  const CifarFiles* files = FindFiles(path);
  return files != nullptr && HasFile(path, files->test[0]);
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenCifarFolder(const std::string& path, const DatasetOptions& options) {
  const CifarFiles* files = FindFiles(path);
  if (files == nullptr) return Invalid(path, ": the folder holds no CIFAR files (data_batch_1.bin …)");
  const int64_t row_bytes = files->row_bytes(), limit = options.max_bytes;
  std::vector<std::byte> rows;
  for (const std::string& name : options.eval_split ? files->test : files->train)
    RETURN_IF_ERROR(AppendRows((fs::path(path) / name).string(), row_bytes, limit, &rows));
  const int64_t samples = static_cast<int64_t>(rows.size()) / row_bytes;
  HostTensor images({DType::kUInt8, {samples, 3, 32, 32}});
  std::vector<std::vector<int64_t>> values(files->labels.size(), std::vector<int64_t>(samples));
  for (int64_t i = 0; i < samples; ++i) {
    const std::byte* row = rows.data() + i * row_bytes;
    for (std::vector<int64_t>& column : values) column[i] = static_cast<int64_t>(*row++);
    std::copy_n(row, kPixels, images.mutable_bytes().data() + i * kPixels);
  }
  std::vector<NamedTensor> columns;
  columns.push_back({"image", std::move(images)});
  for (size_t l = 0; l < values.size(); ++l) {
    ASSIGN_OR_RETURN(NamedTensor column, MakeLabels(path, files->labels[l], std::move(values[l])));
    columns.push_back(std::move(column));
  }
  return MakeMemoryDataset(std::move(columns), [path](int64_t i) { return StrCat(path, ": sample ", i); });
}

}  // namespace onnxtrain
