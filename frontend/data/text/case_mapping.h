// Case mappings and character classes of Python's str, over UTF-8, by ICU's data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace onnxtrain {

enum class CaseMapping : uint8_t { kLower, kUpper, kTitle };

// Maps valid UTF-8 as str.lower and str.upper do, with the special and context-dependent mappings of Unicode. kTitle
// maps the first character to title case and the others to lower case, as str.capitalize does.
std::string MapCase(std::string_view text, CaseMapping mapping);
// Begins a word with title case after each character without case, as str.title does.
std::string TitleWords(std::string_view text);

enum CharClasses : uint8_t {
  kIsSpace = 1,
  kIsUpper = 2,  // Ll, Lu and Lt are the cased characters
  kIsLower = 4,
  kIsTitle = 8,
  kIsAlpha = 16,
  kIsDecimal = 32,
  kIsDigit = 64,    // also superscripts
  kIsNumeric = 128  // also fractions
};
uint8_t GetCharClasses(char32_t c);
// Returns true if Python's repr writes the character without an escape.
bool IsPrintable(char32_t c);

}  // namespace onnxtrain
