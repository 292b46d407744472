// Identifiers, quoting and numbers of the text form, shared by its printer and parser.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "frontend/graph/type.h"

namespace onnxtrain::text {

inline bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }
inline bool IsWordChar(char c) { return IsLetter(c) || IsDigit(c) || c == '.' || c == '/'; }
// Whether s is a letter or '_' followed by letters, digits, '_', '.' and '/'.
bool IsWord(std::string_view s);

// Returns s in quotes: "a \"b\"\n". Control characters become \xNN, all other bytes stay.
std::string Quote(std::string_view s);

std::string ToHex(std::span<const std::byte> bytes);
std::optional<std::string> FromHex(std::string_view hex);

// Convert one element, DTypeSize(dtype) bytes, to text and back, bit for bit. ScanElement also accepts any decimal
// number that fits the type, and "inf", "nan" and "nan(BITS)" for float types.
std::string FormatElement(DType dtype, const std::byte* element);
bool ScanElement(DType dtype, std::string_view token, std::byte* element);

// Formats a float attribute, never like an integer: "3.0", "1e-05", "inf".
std::string FormatDouble(double value);

}  // namespace onnxtrain::text
