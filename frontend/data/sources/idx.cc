#include "frontend/data/sources/rows.h"

#include <array>
#include <filesystem>
#include <optional>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<int, DType> kTypes[] = {
    {0x08, DType::kUInt8}, {0x09, DType::kInt8},    {0x0B, DType::kInt16},
    {0x0C, DType::kInt32}, {0x0D, DType::kFloat32}, {0x0E, DType::kFloat64},
};

using Magic = std::array<uint8_t, 4>;

std::optional<DType> ParseDType(const Magic& magic) {
  for (const auto& [code, dtype] : kTypes) {
    if (magic[0] == 0 && magic[1] == 0 && magic[2] == code && magic[3] > 0) return dtype;
  }
  return std::nullopt;
}

absl::StatusOr<Type> ReadHeader(const ReadFn& read) {
  Magic magic;
  RETURN_IF_ERROR(ReadExactly(read, std::as_writable_bytes(std::span(magic))));
  const std::optional<DType> dtype = ParseDType(magic);
  if (!dtype) return Invalid("not an idx file (bad magic)");
  Type type{*dtype, {}};
  for (int axis = 0; axis < magic[3]; ++axis) {
    std::array<uint8_t, 4> e;
    RETURN_IF_ERROR(ReadExactly(read, std::as_writable_bytes(std::span(e))));
    type.shape.push_back(int64_t{e[0]} << 24 | e[1] << 16 | e[2] << 8 | e[3]);
  }
  RETURN_IF_ERROR(CheckShape(type.shape));
  return type;
}

absl::StatusOr<NamedTensor> ReadNamedTensor(const std::string& path, const DatasetOptions& options) {
  auto tensor = ReadIdx(path, options.max_bytes);
  if (!tensor.ok()) return Annotate(tensor.status(), StrCat(path, ": "));
  const bool images = tensor->type().rank() > 1;
  return NamedTensor{images ? "image" : "label", *std::move(tensor)};
}

absl::StatusOr<std::shared_ptr<const Dataset>> MakeIdxDataset(const std::string& path,
                                                              std::vector<NamedTensor> columns) {
  auto dataset = MakeMemoryDataset(std::move(columns), [path](int64_t i) { return StrCat(path, ": sample ", i); });
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

bool Replace(std::string* text, std::string_view from, std::string_view to) {
  const size_t at = text->rfind(from);
  if (at == std::string::npos) return false;
  text->replace(at, from.size(), to);
  return true;
}

// Returns the labels file that belongs to a file of images, gzip or plain.
std::optional<std::string> FindLabelsFile(const std::string& images) {
  const fs::path path(images);
  std::string name = path.filename().string();
  if (!Replace(&name, "images", "labels")) return std::nullopt;
  Replace(&name, "idx3", "idx1");
  const std::string plain = name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
  for (const std::string& candidate : {name, plain, plain + ".gz"}) {
    std::error_code ignored;
    if (fs::exists(path.parent_path() / candidate, ignored)) return (path.parent_path() / candidate).string();
  }
  return std::nullopt;
}

// Finds the file in the folder whose name starts with `prefix`; prefers a plain file to a gzip one.
absl::StatusOr<std::string> FindFile(const fs::path& folder, const std::string& prefix) {
  std::error_code error;
  std::optional<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    if (found && *found + ".gz" != name && name + ".gz" != *found) {
      return Invalid("both '", *found, "' and '", name, "' could be the ", prefix, " file");
    }
    if (!found || name.size() < found->size()) found = name;
  }
  if (error) return Invalid(error.message());
  if (!found) {
    return absl::NotFoundError(StrCat("no file ", prefix,
                                      "… (a data folder holds MNIST's train-images, train-labels, "
                                      "t10k-images and t10k-labels)"));
  }
  return (folder / *found).string();
}

bool HasFile(const std::string& folder, std::string_view prefix) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

bool IsMnistFolder(const std::string& path) { return HasFile(path, "train-images") || HasMnistEvalFiles(path); }

bool HasMnistEvalFiles(const std::string& path) { return HasFile(path, "t10k-images"); }

bool IsIdx(const std::string& path) {
  auto file = InputFile::Open(path);
  Magic magic;
  return file.ok() && ReadExactly(file->reader(), std::as_writable_bytes(std::span(magic))).ok() &&
         ParseDType(magic).has_value();
}

absl::StatusOr<HostTensor> ReadIdx(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  ASSIGN_OR_RETURN(const Type type, ReadHeader(file.reader()));
  const auto bytes = static_cast<int64_t>(type.bytes());
  if (bytes > file.max_size()) return Invalid("the header declares ", ToString(type), ", more than the file can hold");
  RETURN_IF_ERROR(CheckMemory(bytes, max_bytes));
  HostTensor tensor(type);
  RETURN_IF_ERROR(ReadExactly(file.reader(), tensor.mutable_bytes()));
  std::byte more;
  ASSIGN_OR_RETURN(const size_t rest, file.Read({&more, 1}));  // reading to the end also checks gzip's checksum
  if (rest != 0) return Invalid("the file holds more than the ", ToString(type), " that its header declares");
  SwapBytes(tensor.mutable_bytes(), DTypeSize(type.dtype));
  return tensor;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenIdx(const std::string& path, const DatasetOptions& options) {
  std::vector<NamedTensor> columns;
  ASSIGN_OR_RETURN(NamedTensor first, ReadNamedTensor(path, options));
  const bool images = first.name == "image";
  columns.push_back(std::move(first));
  const std::optional<std::string> labels = images ? FindLabelsFile(path) : std::nullopt;
  if (labels) {
    ASSIGN_OR_RETURN(NamedTensor second, ReadNamedTensor(*labels, options));
    columns.push_back(std::move(second));
  }
  return MakeIdxDataset(path, std::move(columns));
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenMnistFolder(const std::string& path, const DatasetOptions& options) {
  std::vector<NamedTensor> columns;
  for (const char* kind : {"-images", "-labels"}) {
    auto file = FindFile(path, StrCat(options.eval_split ? "t10k" : "train", kind));
    if (!file.ok()) return Annotate(file.status(), StrCat(path, ": "));
    ASSIGN_OR_RETURN(NamedTensor column, ReadNamedTensor(*file, options));
    columns.push_back(std::move(column));
  }
  return MakeIdxDataset(path, std::move(columns));
}

}  // namespace onnxtrain
