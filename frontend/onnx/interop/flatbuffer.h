// Reads and writes the files of ONNX Runtime that are flatbuffers: tables of named tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Reads an untrusted flatbuffer. Reads outside of the bytes return 0 and are recorded.
class FlatReader {
 public:
  explicit FlatReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool damaged() const { return damaged_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  size_t root() const { return Follow(0); }  // the position of the root table

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

  // Returns the position that the offset stored at `at` refers to.
  size_t Follow(size_t at) const { return at + Read<uint32_t>(at); }

  // Returns the position of a table's field; 0 if it is absent.
  size_t Field(size_t table, int field) const {
    const size_t vtable = table - static_cast<size_t>(static_cast<int64_t>(Read<int32_t>(table)));
    const size_t entry = 4 + 2 * static_cast<size_t>(field);
    if (entry + 2 > Read<uint16_t>(vtable)) return 0;
    const uint16_t offset = Read<uint16_t>(vtable + entry);
    return offset == 0 ? 0 : table + offset;
  }

  // Returns the bytes of a vector field with elements of `size` bytes; empty if the field is absent.
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

  // Returns the positions of the tables in a vector field.
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

// Returns true if the four bytes after the root's offset are the identifier.
bool HasFlatIdentifier(std::span<const std::byte> bytes, std::string_view identifier);

// The numbers of the fields of a table that holds a tensor, in schema order.
struct FlatTensorFields {
  int name = 0, dims = 0, data_type = 0, raw_data = 0;
};

// Reads the tensors in tables of an untrusted file. Errors do not name the file.
absl::StatusOr<std::map<std::string, HostTensor>> ReadFlatTensors(const FlatReader& reader,
                                                                  std::span<const size_t> tables,
                                                                  const FlatTensorFields& fields);

// Returns the bytes of a flatbuffer whose root table holds `numbers` in its first three fields and the tensors in the
// fourth; each tensor is a table of name, dims, data type and raw data. Fails above 2 GiB, to which offsets are
// limited.
absl::StatusOr<std::string> WriteFlatTensors(std::string_view identifier, std::span<const int32_t, 3> numbers,
                                             const std::map<std::string, HostTensor>& tensors);

}  // namespace onnxtrain
