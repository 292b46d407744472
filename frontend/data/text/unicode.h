// UTF-8 and the character properties that define tokenizers. Uses ICU's data, which also has the version in which a
// character was assigned, normalization forms and regular expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

enum CharFlags : uint16_t {
  kLetter = 1,         // \p{L}
  kNumber = 2,         // \p{N}
  kSpace = 4,          // White_Space
  kMark = 8,           // \p{M} in Unicode 9
  kPunctuation = 16,   // \p{P}
  kUpper = 32,         // Lu, Lt
  kLower = 64,         // Ll
  kBertControl = 128,  // removed by BERT's cleaning; excludes tabs and line ends
  kBertMark = 256,     // Mn; BERT's classes are those of Unicode 8
  kBertPunctuation = 512,
  kChinese = 1024,  // BERT's block of ideographs
  kSymbol = 2048,   // \p{S}
  kWord = 4096,     // \w: alphabetic, mark, decimal number, connector
  kDecimal = 8192,  // Nd
};
// Returns the CharFlags of a code point.
uint16_t GetCharFlags(char32_t c);
inline bool HasFlags(char32_t c, uint16_t any) { return (GetCharFlags(c) & any) != 0; }

// Decodes the first character of valid, non-empty UTF-8 and returns its number of bytes.
size_t DecodeChar(std::string_view text, char32_t* c);
// Returns the number of bytes of the character with this first byte of valid UTF-8.
inline size_t CharBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
void AppendChar(char32_t c, std::string* out);
// Returns the number of bytes of the first character of a non-empty text; 0 if it is invalid UTF-8.
size_t ValidCharBytes(std::string_view text);
// Returns the offset of the first byte that is not UTF-8 (also of surrogates and overlong forms); npos if all is valid.
size_t FindInvalidUtf8(std::string_view text);
bool IsAscii(std::string_view text);

// Appends the lower case of one character, ignoring context; U+0130 becomes two characters.
void AppendLower(char32_t c, std::string* out);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// Appends the normalized text. Characters that are not in Unicode 9 stay unchanged.
void AppendNormalized(NormalForm form, std::string_view text, std::string* out);

// A regular expression over UTF-8, by ICU. Immutable; any number of threads may match at once.
class Regex {
 public:
  static absl::StatusOr<std::shared_ptr<const Regex>> Compile(const std::string& expression);
  virtual ~Regex() = default;
  // Calls visit(begin, end), byte offsets, for each non-empty match from left to right. Throws std::bad_alloc if memory
  // runs out.
  virtual void ForEachMatch(std::string_view text, absl::FunctionRef<void(size_t, size_t)> visit) const = 0;
};

}  // namespace onnxtrain
