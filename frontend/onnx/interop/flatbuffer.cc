#include "frontend/onnx/interop/flatbuffer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

std::string ReadName(const FlatReader& reader, size_t table, const FlatTensorFields& fields) {
  const auto bytes = reader.Elements(table, fields.name, 1);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<HostTensor> ReadValue(const FlatReader& reader, size_t table, const FlatTensorFields& fields) {
  const auto dims = reader.Elements(table, fields.dims, sizeof(int64_t)),
             raw = reader.Elements(table, fields.raw_data, 1);
  const size_t type_at = reader.Field(table, fields.data_type);
  const auto dtype = DTypeFromOnnx(type_at == 0 ? 0 : reader.Read<int32_t>(type_at));
  if (reader.damaged()) return Invalid("is damaged");
  if (!dtype.has_value()) return Invalid("has an element type that is not supported");
  Type type{*dtype, Shape(dims.size() / sizeof(int64_t))};
  std::ranges::copy(dims, std::as_writable_bytes(std::span(type.shape)).begin());
  size_t bytes = DTypeSize(*dtype);
  for (const int64_t d : type.shape) {
    if (d < 0 || (d > 0 && bytes > raw.size() / static_cast<size_t>(d))) return Invalid("has more elements than bytes");
    bytes *= static_cast<size_t>(d);
  }
  if (bytes != raw.size()) return Invalid("has ", raw.size(), " bytes, ", ToString(type), " takes ", bytes);
  HostTensor value(type);
  std::ranges::copy(raw, value.mutable_bytes().begin());
  return value;
}

// Appends objects in the order in which offsets, which are unsigned, may refer to them: parents first. All tables have
// four fields of four bytes, and so share one vtable.
class FlatWriter {
 public:
  explicit FlatWriter(std::string_view identifier) {
    Put<uint32_t>(kFirstTable);
    bytes_ += identifier;
    for (const uint16_t entry : {12, 20, 4, 8, 12, 16}) Put<uint16_t>(entry);  // sizes of vtable and table, fields
  }

  // Appends a table of zeros and returns the positions of its fields.
  std::array<size_t, 4> Table() {
    Align(4);
    Put<int32_t>(static_cast<int32_t>(bytes_.size() - kVtable));
    const size_t first = bytes_.size();
    bytes_.append(16, '\0');
    return {first, first + 4, first + 8, first + 12};
  }

  template <typename T>
  void Set(size_t at, T value) {
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }

  // Lets the field refer to the end of the bytes, aligned so that what follows its count of 4 bytes is aligned to
  // `alignment`, and appends the count.
  void BeginVector(size_t field, size_t count, size_t alignment) {
    while ((bytes_.size() + 4) % std::max<size_t>(alignment, 4) != 0) bytes_ += '\0';
    PointToEnd(field);
    Put<uint32_t>(static_cast<uint32_t>(count));
  }
  void PointToEnd(size_t field) { Set<uint32_t>(field, static_cast<uint32_t>(bytes_.size() - field)); }

  template <typename T>
  void Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void Append(std::span<const std::byte> bytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  void Align(size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_ += '\0';
  }
  size_t size() const { return bytes_.size(); }
  std::string Take() { return std::move(bytes_); }

 private:
  static constexpr size_t kVtable = 8, kFirstTable = 20;
  std::string bytes_;
};

void WriteTensor(const std::string& name, const HostTensor& value, FlatWriter* writer) {
  const auto [name_at, dims_at, type_at, raw_at] = writer->Table();
  writer->Set<int32_t>(type_at, static_cast<int32_t>(DTypeToOnnx(value.dtype())));
  writer->BeginVector(name_at, name.size(), 4);
  writer->Append(std::as_bytes(std::span(name.data(), name.size() + 1)));  // with the zero after the last character
  writer->BeginVector(dims_at, value.shape().size(), 8);
  for (const int64_t extent : value.shape()) writer->Put<int64_t>(extent);
  writer->BeginVector(raw_at, value.bytes().size(), 8);
  writer->Append(value.bytes());
}

}  // namespace

bool HasFlatIdentifier(std::span<const std::byte> bytes, std::string_view identifier) {
  return bytes.size() >= 8 && std::memcmp(bytes.data() + 4, identifier.data(), 4) == 0;
}

absl::StatusOr<std::map<std::string, HostTensor>> ReadFlatTensors(const FlatReader& reader,
                                                                  std::span<const size_t> tables,
                                                                  const FlatTensorFields& fields) {
  std::map<std::string, HostTensor> tensors;
  size_t total = 0;  // bounds values that share bytes, which could exceed the memory
  for (const size_t table : tables) {
    const std::string name = ReadName(reader, table, fields);
    auto value = ReadValue(reader, table, fields);
    if (!value.ok()) return Annotate(value.status(), StrCat("weight '", Printable(name), "': "));
    total += value->bytes().size();
    if (total > reader.bytes().size()) return Invalid("is damaged: its weights overlap");
    tensors.emplace(name, *std::move(value));
  }
  if (reader.damaged()) return Invalid("is damaged");
  return tensors;
}

absl::StatusOr<std::string> WriteFlatTensors(std::string_view identifier, std::span<const int32_t, 3> numbers,
                                             const std::map<std::string, HostTensor>& tensors) {
  FlatWriter writer(identifier);
  const auto root = writer.Table();
  for (size_t i = 0; i < numbers.size(); ++i) writer.Set<int32_t>(root[i], numbers[i]);
  writer.BeginVector(root[3], tensors.size(), 4);
  size_t entry = writer.size();
  for (size_t i = 0; i < tensors.size(); ++i) writer.Put<uint32_t>(0);
  for (const auto& [name, value] : tensors) {
    writer.Align(4);
    writer.PointToEnd(entry);
    entry += 4;
    WriteTensor(name, value, &writer);
    if (writer.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
      return Invalid("the tensors have more than the 2 GiB that the format can hold");
  }
  return writer.Take();
}

}  // namespace onnxtrain
