// UTF-8 and the character properties that tokenizers are defined by. The data is ICU's: it has what the definitions
// need beside categories, the version in which a character was assigned, normalization forms and regular expressions.
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
  kMark = 8,           // \p{M} of Unicode 9
  kPunctuation = 16,   // \p{P}
  kUpper = 32,         // Lu, Lt
  kLower = 64,         // Ll
  kBertControl = 128,  // removed by BERT's cleaning; tabs and line ends are spaces
  kBertMark = 256,     // Mn of Unicode 8, as are all of BERT's classes
  kBertPunctuation = 512,
  kChinese = 1024,  // BERT's block of ideographs
  kSymbol = 2048,   // \p{S}
  kWord = 4096,     // \w: alphabetic, mark, decimal number, connector
  kDecimal = 8192,  // Nd
};
// Flags of a code point.
uint16_t GetCharFlags(char32_t c);
inline bool HasFlags(char32_t c, uint16_t any) { return (GetCharFlags(c) & any) != 0; }

// Decodes the character at the beginning of valid, non-empty UTF-8 and returns its bytes.
size_t DecodeChar(std::string_view text, char32_t* c);
// Bytes of the character that begins with this byte of valid UTF-8.
inline size_t CharBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
void AppendChar(char32_t c, std::string* out);
// Bytes of the valid character at the beginning of a text that is not empty; 0 where there is none.
size_t ValidCharBytes(std::string_view text);
// Offset of the first byte that is not UTF-8 (of a surrogate or an overlong form, too); npos if all is valid.
size_t FindInvalidUtf8(std::string_view text);
bool IsAscii(std::string_view text);

// Lower case of one character, without context; U+0130 becomes two.
void AppendLower(char32_t c, std::string* out);

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// Characters that Unicode 9 does not have are left as they are.
void AppendNormalized(NormalForm form, std::string_view text, std::string* out);

// Regular expressions over UTF-8, by ICU.

// Immutable; any number of threads may match at once.
class Regex {
 public:
  static absl::StatusOr<std::shared_ptr<const Regex>> Compile(const std::string& expression);
  virtual ~Regex() = default;
  // Calls visit(begin, end) for each match, in bytes, from left to right; empty matches do not count. Throws
  // std::bad_alloc where memory runs out.
  virtual void ForEachMatch(std::string_view text, absl::FunctionRef<void(size_t, size_t)> visit) const = 0;
};

}  // namespace onnxtrain
