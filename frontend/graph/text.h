// What the printer and the parser of the text form agree on: identifiers, quoting, and numbers by element type.
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
// A letter or '_', then letters, digits, '_', '.', '/'.
bool IsWord(std::string_view s);

// "a \"b\"\n" with its quotes; control characters as \xNN, all other bytes as they are.
std::string Quote(std::string_view s);

std::string ToHex(std::span<const std::byte> bytes);
std::optional<std::string> FromHex(std::string_view hex);

// One element as text, read from or written to memory of SizeOf(dtype) bytes. Exact: what Format gives, Scan reads back
// to the same bits. Scan takes any decimal number that fits the type, and "inf", "nan", "nan(BITS)" for float types.
std::string FormatElement(DType dtype, const std::byte* element);
bool ScanElement(DType dtype, std::string_view token, std::byte* element);

// The same for attributes of kind number; always looks like one: "3.0", "1e-05", "inf".
std::string FormatDouble(double value);

}  // namespace onnxtrain::text
