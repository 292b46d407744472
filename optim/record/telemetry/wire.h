// Writes protobuf's wire format, for the few messages of TensorBoard.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

namespace onnxtrain::wire {

static_assert(std::endian::native == std::endian::little, "fixed-size values are little-endian");

enum Type { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
std::string Raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}

inline std::string Key(int field, Type type) { return Varint(static_cast<uint64_t>(field) << 3 | type); }

inline std::string Field(int field, Type type, const std::string& value) {
  std::string bytes = Key(field, type);
  bytes += value;
  return bytes;
}

// A field of bytes, text, a message, or packed numbers.
inline std::string Sub(int field, const std::string& content) {
  std::string bytes = Field(field, kBytes, Varint(content.size()));
  bytes += content;
  return bytes;
}
inline std::string Double(int field, double value) { return Field(field, kFixed64, Raw(value)); }
inline std::string Float(int field, float value) { return Field(field, kFixed32, Raw(value)); }
inline std::string Integer(int field, int64_t value) {
  return Field(field, kVarint, Varint(static_cast<uint64_t>(value)));
}

}  // namespace onnxtrain::wire
