#include "frontend/onnx/interop/ort_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {
namespace {

constexpr char kIdentifier[] = "ODTC";
constexpr size_t kRoot = 0, kIdentifierAt = 4;

// Fields of the tables, in the order of the schema.
enum CheckpointField { kVersion, kModuleState };
enum ModuleField { kTrained, kFrozen, kIsNominal, kHasExternalData };
enum TensorField { kName, kDocString, kDims, kDataType, kRawData, kStringData };

// A flatbuffer whose offsets are not trusted. What lies outside of the bytes reads as 0 and is remembered.
class Buffer {
 public:
  explicit Buffer(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool damaged() const { return damaged_; }

  template <typename T>
  T Read(size_t at) const {
    T value = 0;
    if (at > bytes_.size() || bytes_.size() - at < sizeof(T)) {
      damaged_ = true;
    } else {
      std::memcpy(&value, bytes_.data() + at, sizeof(T));
    }
    return value;
  }

  // Follows the offset that is stored there.
  size_t Follow(size_t at) const { return at + Read<uint32_t>(at); }

  // The position of a table's field; 0: absent.
  size_t Field(size_t table, int field) const {
    const size_t vtable = table - static_cast<size_t>(static_cast<int64_t>(Read<int32_t>(table)));
    const size_t entry = 4 + 2 * static_cast<size_t>(field);
    if (entry + 2 > Read<uint16_t>(vtable)) return 0;
    const uint16_t offset = Read<uint16_t>(vtable + entry);
    return offset == 0 ? 0 : table + offset;
  }

  // The elements of a vector of elements of this size; empty where the field is absent.
  std::span<const std::byte> Elements(size_t table, int field, size_t size) const {
    const size_t at = Field(table, field);
    if (at == 0) return {};
    const size_t vector = Follow(at), count = Read<uint32_t>(vector);
    if (damaged_ || bytes_.size() - vector - 4 < count * size) {
      damaged_ = true;
      return {};
    }
    return bytes_.subspan(vector + 4, count * size);
  }

  // The positions of the tables that a vector holds.
  std::vector<size_t> Tables(size_t table, int field) const {
    const auto offsets = Elements(table, field, sizeof(uint32_t));
    std::vector<size_t> tables;
    for (size_t i = 0; i < offsets.size(); i += sizeof(uint32_t))
      tables.push_back(Follow(static_cast<size_t>(offsets.data() - bytes_.data()) + i));
    return tables;
  }

 private:
  std::span<const std::byte> bytes_;
  mutable bool damaged_ = false;
};

bool HasIdentifier(std::span<const std::byte> bytes) {
  return bytes.size() >= 8 && std::memcmp(bytes.data() + kIdentifierAt, kIdentifier, 4) == 0;
}

std::string ReadName(const Buffer& buffer, size_t tensor) {
  const auto bytes = buffer.Elements(tensor, kName, 1);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<HostTensor> ReadValue(const Buffer& buffer, size_t tensor) {
  const auto dims = buffer.Elements(tensor, kDims, sizeof(int64_t)), raw = buffer.Elements(tensor, kRawData, 1);
  const size_t type_at = buffer.Field(tensor, kDataType);
  const auto dtype = DTypeFromOnnx(type_at == 0 ? 0 : buffer.Read<int32_t>(type_at));
  if (buffer.damaged()) return Invalid("is damaged");
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

}  // namespace

bool IsOrtCheckpoint(const std::string& path) {
  std::vector<char> bytes(256);
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::span<const std::byte> head = std::as_bytes(std::span(bytes).first(static_cast<size_t>(file.gcount())));
  if (!HasIdentifier(head)) return false;
  const Buffer buffer(head);
  const size_t state = buffer.Field(buffer.Follow(kRoot), kModuleState);
  if (state == 0) return false;
  const size_t nominal = buffer.Field(buffer.Follow(state), kIsNominal);
  return nominal == 0 || buffer.Read<uint8_t>(nominal) == 0 || buffer.damaged();
}

absl::StatusOr<std::map<std::string, HostTensor>> ParseOrtCheckpoint(std::span<const std::byte> bytes) {
  if (!HasIdentifier(bytes)) return Invalid("is no checkpoint of ONNX Runtime");
  const Buffer buffer(bytes);
  const size_t field = buffer.Field(buffer.Follow(kRoot), kModuleState);
  if (field == 0 || buffer.damaged()) return Invalid("is damaged: it holds no weights");
  const size_t state = buffer.Follow(field);
  const size_t external = buffer.Field(state, kHasExternalData);
  if (external != 0 && buffer.Read<uint8_t>(external) != 0)
    return Invalid("keeps its values in another file, which is not read");
  std::map<std::string, HostTensor> weights;
  size_t total = 0;  // values that share bytes could be more than the memory
  for (const int list : {kTrained, kFrozen}) {
    for (const size_t tensor : buffer.Tables(state, list)) {
      const std::string name = ReadName(buffer, tensor);
      auto value = ReadValue(buffer, tensor);
      if (!value.ok()) return Annotate(value.status(), StrCat("weight '", name, "': "));
      total += value->bytes().size();
      if (total > bytes.size()) return Invalid("is damaged: its weights overlap");
      weights.emplace(name, *std::move(value));
    }
  }
  return buffer.damaged() ? absl::StatusOr<std::map<std::string, HostTensor>>(Invalid("is damaged")) : weights;
}

}  // namespace onnxtrain
