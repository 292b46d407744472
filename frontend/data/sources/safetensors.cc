#include "frontend/data/sources/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/sources/file_arrays.h"
#include "frontend/data/sources/json.h"

namespace onnxtrain {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr int64_t kMaxHeader = int64_t{100} << 20;  // limit of the reference implementation
constexpr const char* kMetadata = "__metadata__";
constexpr auto kReplace = Json::error_handler_t::replace;

struct DTypeRow {
  DType dtype;
  const char* name;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kFloat64, "F64"},
    {DType::kFloat32, "F32"},
    {DType::kFloat16, "F16"},
    {DType::kBFloat16, "BF16"},
    {DType::kInt64, "I64"},
    {DType::kInt32, "I32"},
    {DType::kInt16, "I16"},
    {DType::kInt8, "I8"},
    {DType::kUInt64, "U64"},
    {DType::kUInt32, "U32"},
    {DType::kUInt16, "U16"},
    {DType::kUInt8, "U8"},
    {DType::kFloat8E4M3FN, "F8_E4M3"},
    {DType::kFloat8E5M2, "F8_E5M2"},
    {DType::kBool, "BOOL"},
};

const char* FormatName(DType dtype) {
  const auto row = std::ranges::find(kDTypes, dtype, &DTypeRow::dtype);
  return row == std::end(kDTypes) ? nullptr : row->name;
}

const DTypeRow* FindDType(std::string_view name) {
  const auto row = std::ranges::find_if(kDTypes, [&](const DTypeRow& r) { return r.name == name; });
  return row == std::end(kDTypes) ? nullptr : row;
}

struct Entry {
  std::string name;
  Type type;
  int64_t begin = 0, end = 0;  // bytes, relative to the end of the header
};

absl::StatusOr<Shape> ParseShape(const Json& json) {
  Shape shape;
  if (!json.is_array() || json.size() > 64) return Invalid("its shape is no list");
  for (const Json& extent : json) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > (uint64_t{1} << 40))
      return Invalid("its shape has an extent that is none");
    shape.push_back(extent.get<int64_t>());
  }
  RETURN_IF_ERROR(CheckShape(shape));
  return shape;
}

absl::StatusOr<Entry> ParseEntry(const std::string& name, const Json& json) {
  Entry entry{.name = name};
  const auto text = [&](const char* key) { return json.is_object() && json.contains(key) ? json[key] : Json(); };
  const Json dtype = text("dtype"), offsets = text("data_offsets");
  const DTypeRow* row = dtype.is_string() ? FindDType(dtype.get<std::string>()) : nullptr;
  if (row == nullptr) return Invalid("has the unknown type ", WriteJson(dtype));
  entry.type.dtype = row->dtype;
  ASSIGN_OR_RETURN(entry.type.shape, ParseShape(text("shape")));
  const bool pair =
      offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned();
  if (!pair) return Invalid("its data_offsets are no two numbers");
  entry.begin = offsets[0].get<int64_t>();
  entry.end = offsets[1].get<int64_t>();
  if (entry.begin < 0 || entry.end - entry.begin != static_cast<int64_t>(entry.type.bytes()))
    return Invalid(ToString(entry.type), " takes ", entry.type.bytes(), " bytes, its data_offsets say otherwise");
  return entry;
}

// Parses the header and returns the tensors in the order of their bytes. They must cover `bytes` without gap or
// overlap.
absl::StatusOr<std::vector<Entry>> ParseHeader(std::string_view text, int64_t bytes) {
  const Json header = ParseJson(text);
  if (!header.is_object()) return Invalid("its header is no JSON object");
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) continue;
    auto entry = ParseEntry(name, value);
    if (!entry.ok()) return Annotate(entry.status(), StrCat("tensor '", Printable(name), "': "));
    entries.push_back(*std::move(entry));
  }
  std::ranges::stable_sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  int64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered)
      return Invalid("tensor '", Printable(entry.name), "': begins at ", entry.begin, ", not ", covered);
    covered = entry.end;
  }
  if (covered != bytes) return Invalid("holds ", bytes, " bytes of tensors, its header declares ", covered);
  return entries;
}

using Opened = absl::StatusOr<std::shared_ptr<const Dataset>>;

// The part of a file before the tensors' bytes.
struct FileHeader {
  std::vector<Entry> entries;
  int64_t bytes = 0;  // size of the header itself
};

absl::StatusOr<FileHeader> ReadHeader(const ReadFn& read, int64_t size) {
  uint64_t length = 0;
  RETURN_IF_ERROR(ReadExactly(read, std::as_writable_bytes(std::span(&length, 1))));
  const int64_t rest = size - static_cast<int64_t>(sizeof(length));
  if (rest < 0 || length > static_cast<uint64_t>(std::min(rest, kMaxHeader)))
    return Invalid("its header is longer than the file");
  std::string text(length, '\0');
  RETURN_IF_ERROR(ReadExactly(read, std::as_writable_bytes(std::span(text))));
  FileHeader header{.bytes = static_cast<int64_t>(sizeof(length) + length)};
  ASSIGN_OR_RETURN(header.entries, ParseHeader(text, size - header.bytes));
  return header;
}

Opened OpenInMemory(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(NamedArrays arrays, ReadSafetensors(path, options.max_bytes));
  std::vector<NamedTensor> columns;
  for (auto& [name, tensor] : arrays) columns.push_back({std::move(name), std::move(tensor)});
  auto dataset = MakeMemoryDataset(std::move(columns), [path](int64_t i) { return StrCat(path, ": sample ", i); });
  if (!dataset.ok()) return Annotate(dataset.status(), path + ": ");
  return dataset;
}

Opened OpenInFile(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, RandomFile::Open(path));
  ASSIGN_OR_RETURN(const FileHeader header, ReadHeader(file->reader(0, file->size()), file->size()));
  std::vector<FileArray> arrays;
  for (const Entry& entry : header.entries)
    arrays.push_back({.name = entry.name, .type = entry.type, .offset = header.bytes + entry.begin});
  return MakeFileDataset(path, file, std::move(arrays));
}

}  // namespace

Opened OpenSafetensors(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  if (size <= kHeldInMemory) return OpenInMemory(path, options);
  auto dataset = OpenInFile(path);
  if (!dataset.ok()) return Annotate(dataset.status(), path + ": ");
  return dataset;
}

absl::StatusOr<std::string> SafetensorsHeader(const std::vector<NamedType>& tensors,
                                              const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t end = 0;
  for (const auto& [name, type] : tensors) {
    const char* dtype = FormatName(type.dtype);
    if (dtype == nullptr) return Invalid("tensor '", name, "': safetensors has no type ", ToString(type.dtype));
    if (header.contains(name)) return Invalid("two tensors are named '", name, "'");
    if (Json(name).dump(-1, ' ', false, Json::error_handler_t::ignore) != Json(name).dump(-1, ' ', false, kReplace))
      return Invalid("tensor '", name, "': its name is no UTF-8");
    const int64_t begin = std::exchange(end, end + static_cast<int64_t>(type.bytes()));
    header[name] = {{"dtype", dtype}, {"shape", type.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = WriteJson(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

absl::Status VisitSafetensors(const ReadFn& read, int64_t size, const ArrayVisitor& visit) {
  ASSIGN_OR_RETURN(const FileHeader header, ReadHeader(read, size));
  for (const Entry& entry : header.entries) {
    HostTensor value(entry.type);
    RETURN_IF_ERROR(ReadExactly(read, value.mutable_bytes()));
    RETURN_IF_ERROR(visit(entry.name, std::move(value)));
  }
  return absl::OkStatus();
}

absl::StatusOr<NamedArrays> ReadSafetensors(const ReadFn& read, int64_t size, int64_t max_bytes) {
  RETURN_IF_ERROR(CheckMemory(size, max_bytes));
  NamedArrays arrays;
  RETURN_IF_ERROR(VisitSafetensors(read, size, [&](const std::string& name, HostTensor value) {
    arrays.emplace_back(name, std::move(value));
    return absl::OkStatus();
  }));
  return arrays;
}

absl::StatusOr<NamedArrays> ReadSafetensors(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  ASSIGN_OR_RETURN(const auto file, RandomFile::Open(path));
  auto arrays = ReadSafetensors(file->reader(0, size), size, max_bytes);
  if (!arrays.ok()) return Annotate(arrays.status(), path + ": ");
  return arrays;
}

}  // namespace onnxtrain
