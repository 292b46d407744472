#include "frontend/data/text/case_mapping.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/stringoptions.h>
#include <unicode/uchar.h>

#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

icu::StringPiece ToPiece(std::string_view text) { return {text.data(), static_cast<int32_t>(text.size())}; }

std::string TitleChar(std::string_view c) {
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode error = U_ZERO_ERROR;
  icu::CaseMap::utf8ToTitle("", U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT, nullptr, ToPiece(c), sink,
                            nullptr, error);
  return out;
}

// Returns the title case of the first character, and the lower case of the others in their context.
std::string TitleWord(std::string_view word) {
  if (word.empty()) return "";
  const size_t first = CharBytes(word.front());
  const std::string lower = MapCase(word, CaseMapping::kLower);
  const std::string lower_first = MapCase(word.substr(0, first), CaseMapping::kLower);
  return TitleChar(word.substr(0, first)) + lower.substr(lower_first.size());
}

bool IsCased(char32_t c) { return (GetCharClasses(c) & (kIsUpper | kIsLower | kIsTitle)) != 0; }

}  // namespace

std::string MapCase(std::string_view text, CaseMapping mapping) {
  if (mapping == CaseMapping::kTitle) return TitleWord(text);
  std::string out;
  icu::StringByteSink<std::string> sink(&out);
  UErrorCode error = U_ZERO_ERROR;
  if (mapping == CaseMapping::kLower) {
    icu::CaseMap::utf8ToLower("", 0, ToPiece(text), sink, nullptr, error);
  } else {
    icu::CaseMap::utf8ToUpper("", 0, ToPiece(text), sink, nullptr, error);
  }
  return out;
}

std::string TitleWords(std::string_view text) {
  std::string out;
  size_t word = 0;  // begin of the current run of cased characters
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const size_t bytes = DecodeChar(text.substr(at), &c);
    const bool cased = IsCased(c);
    if (cased && !in_word) word = at;
    if (!cased && in_word) out += TitleWord(text.substr(word, at - word));
    if (!cased) out += text.substr(at, bytes);
    in_word = cased;
    at += bytes;
  }
  return in_word ? out + TitleWord(text.substr(word)) : out;
}

uint8_t GetCharClasses(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  const int32_t numeric = u_getIntPropertyValue(point, UCHAR_NUMERIC_TYPE);
  const uint32_t category = U_GET_GC_MASK(point);
  uint8_t classes = 0;
  const auto add = [&](bool is, uint8_t flag) { classes |= is ? flag : 0; };
  add((c >= 0x1c && c <= 0x1f) || u_hasBinaryProperty(point, UCHAR_WHITE_SPACE), kIsSpace);
  add(u_hasBinaryProperty(point, UCHAR_UPPERCASE), kIsUpper);
  add(u_hasBinaryProperty(point, UCHAR_LOWERCASE), kIsLower);
  add((category & U_GC_LT_MASK) != 0, kIsTitle);
  add((category & U_GC_L_MASK) != 0, kIsAlpha);
  add(numeric == U_NT_DECIMAL, kIsDecimal);
  add(numeric == U_NT_DECIMAL || numeric == U_NT_DIGIT, kIsDigit);
  add(numeric != U_NT_NONE, kIsNumeric);
  return classes;
}

bool IsPrintable(char32_t c) {
  return c == ' ' || (U_GET_GC_MASK(static_cast<UChar32>(c)) & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
}

}  // namespace onnxtrain
