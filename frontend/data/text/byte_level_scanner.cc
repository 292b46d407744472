#include "frontend/data/text/byte_level_scanner.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "frontend/data/text/unicode.h"

namespace onnxtrain {
namespace {

enum class Kind : uint8_t { kOther, kLetter, kNumber, kSpace, kEnd };

Kind KindOf(uint16_t flags) {
  if ((flags & kLetter) != 0) return Kind::kLetter;
  if ((flags & kNumber) != 0) return Kind::kNumber;
  return (flags & kSpace) != 0 ? Kind::kSpace : Kind::kOther;
}

constexpr std::array<Kind, 128> kAsciiKinds = [] {
  std::array<Kind, 128> kinds{};
  for (int c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    kinds[c] = letter ? Kind::kLetter : c >= '0' && c <= '9' ? Kind::kNumber : space ? Kind::kSpace : Kind::kOther;
  }
  return kinds;
}();

struct Char {
  Kind kind;
  size_t bytes;
};

inline Char CharAt(std::string_view text, size_t at) {
  if (at >= text.size()) return {Kind::kEnd, 0};
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {kAsciiKinds[byte], 1};
  char32_t c;
  const size_t bytes = DecodeChar(text.substr(at), &c);
  return {KindOf(GetCharFlags(c)), bytes};
}

// Returns the number of leading ASCII letters in 8 bytes of text; the other bytes may be anything.
inline size_t CountLetters(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kHigh = 0x80 * kOnes;
  const uint64_t lower = (word & ~kHigh) | 0x20 * kOnes;  // no sum below carries into the next byte
  const uint64_t from_a = lower + (0x80 - 'a') * kOnes, above_z = lower + (0x7f - 'z') * kOnes;
  const uint64_t others = ~(from_a & ~above_z & ~word) & kHigh;
  return others == 0 ? 8 : static_cast<size_t>(std::countr_zero(others)) / 8;
}

// Returns the end of the run of `kind` that begins at `at`, of at most `limit` characters.
inline size_t SkipRun(std::string_view text, size_t at, Kind kind, size_t limit = std::numeric_limits<size_t>::max()) {
  for (; limit > 0; --limit) {
    const Char c = CharAt(text, at);
    if (c.kind != kind) break;
    at += c.bytes;
  }
  return at;
}

inline size_t SkipLetters(std::string_view text, size_t at) {
  while (at + sizeof(uint64_t) <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, sizeof word);
    const size_t letters = CountLetters(word);
    at += letters;
    if (letters == sizeof word) continue;
    if (static_cast<unsigned char>(text[at]) < 0x80) return at;
    const Char c = CharAt(text, at);
    if (c.kind != Kind::kLetter) return at;
    at += c.bytes;
  }
  return SkipRun(text, at, Kind::kLetter);
}

bool IsLineEnd(char c) { return c == '\r' || c == '\n'; }

size_t SkipLineEnds(std::string_view text, size_t at) {
  while (at < text.size() && IsLineEnd(text[at])) ++at;
  return at;
}

char LowerAscii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; }

// Returns the end of 's, 't, 'm, 'd, 're, 've or 'll at `at`, or `at` if there is none. With `any_case`, also in upper
// case and with the long s.
size_t SkipContraction(std::string_view text, size_t at, bool any_case) {
  if (text[at] != '\'' || at + 1 == text.size()) return at;
  const auto letter = [&](size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case ? LowerAscii(c) : c;
  };
  const char a = letter(at + 1), b = letter(at + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
  const std::string_view long_s = "\u017f";
  return any_case && text.substr(at + 1).starts_with(long_s) ? at + 1 + long_s.size() : at;
}

// Matches \s+(?!\S)|\s+ at a space: a run without its last character, which may belong to the next piece.
size_t ScanSpaces(std::string_view text, size_t begin) {
  size_t end = begin, last = begin;
  for (Char c = CharAt(text, end); c.kind == Kind::kSpace; c = CharAt(text, end)) {
    last = end;
    end += c.bytes;
  }
  return end == text.size() || last == begin ? end : last;
}

// Matches \s*[\r\n]+ at a space; returns `begin` if there is no match.
size_t ScanLines(std::string_view text, size_t begin) {
  const size_t end = SkipRun(text, begin, Kind::kSpace);
  for (size_t at = end; at > begin; --at) {
    if (IsLineEnd(text[at - 1])) return at;
  }
  return begin;
}

// Matches [^\r\n\p{L}\p{N}]?\p{L}+; returns `begin` if there is no match.
size_t ScanPrefixedLetters(std::string_view text, size_t begin) {
  const Char first = CharAt(text, begin);
  if (first.kind == Kind::kLetter) return SkipLetters(text, begin + first.bytes);
  if (first.kind == Kind::kNumber || IsLineEnd(text[begin])) return begin;
  const size_t end = SkipLetters(text, begin + first.bytes);
  return end == begin + first.bytes ? begin : end;
}

}  // namespace

size_t ScanCl100k(std::string_view text, size_t begin, size_t digits) {
  if (const size_t end = SkipContraction(text, begin, true); end > begin) return end;
  if (const size_t end = ScanPrefixedLetters(text, begin); end > begin) return end;
  const Char first = CharAt(text, begin);
  if (first.kind == Kind::kNumber) return SkipRun(text, begin, Kind::kNumber, digits);
  const size_t others = text[begin] == ' ' ? begin + 1 : begin;
  if (const size_t end = SkipRun(text, others, Kind::kOther); end > others) return SkipLineEnds(text, end);
  if (const size_t end = ScanLines(text, begin); end > begin) return end;
  return ScanSpaces(text, begin);
}

size_t ScanGpt2(std::string_view text, size_t begin) {
  if (const size_t end = SkipContraction(text, begin, false); end > begin) return end;
  const size_t at = text[begin] == ' ' ? begin + 1 : begin;
  const Char first = CharAt(text, at);
  if (first.kind == Kind::kLetter) return SkipLetters(text, at + first.bytes);
  if (first.kind == Kind::kSpace || first.kind == Kind::kEnd) return ScanSpaces(text, begin);
  return SkipRun(text, at + first.bytes, first.kind);
}

PieceScanners FindPieceScanners(std::string_view expression) {
  struct Known {
    std::string_view expression;
    PieceScanners scanners;
  };
  constexpr PieceScanners kGpt2 = {ScanGpt2, ScanGpt2Batch};
  constexpr PieceScanners kThreeDigits = {[](std::string_view t, size_t b) { return ScanCl100k(t, b, 3); },
                                          ScanCl100kBatch};
  constexpr PieceScanners kOneDigit = {[](std::string_view t, size_t b) { return ScanCl100k(t, b, 1); },
                                       ScanCl100kDigitsBatch};
  static constexpr Known kKnown[] = {
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", kGpt2},
      {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", kGpt2},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
       R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       kThreeDigits},
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+)"
       R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       kOneDigit},
  };
  for (const Known& known : kKnown) {
    if (known.expression == expression) return known.scanners;
  }
  return {};
}

}  // namespace onnxtrain
