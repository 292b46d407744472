// Implements functions on texts that methods and filters share. Widths count characters, offsets count bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/data/chat/interpreter.h"

namespace onnxtrain::jinja {

enum StripSides : uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };
// Strips the given characters, by default white space.
std::string_view Strip(std::string_view text, std::optional<std::string_view> chars, StripSides sides);

// Returns the byte offset of the first white space, or the size.
size_t FindSpace(std::string_view text);
// Returns the byte offset after the last white space, or 0.
size_t FindLastWord(std::string_view text);
// Splits at the line ends that Python recognizes.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// Replaces at most `count` occurrences, or all if it is negative.
absl::StatusOr<std::string> Replace(Interpreter& run, std::string_view text, std::string_view from, std::string_view to,
                                    int64_t count = -1);

enum class Alignment : uint8_t { kLeft, kRight, kCenter };
// Pads to a width with `fill`, which is one character.
absl::StatusOr<std::string> Align(Interpreter& run, std::string_view text, int64_t width, std::string_view fill,
                                  Alignment alignment);

struct WordWrap {
  int64_t width = 79;            // characters of a line
  bool break_long_words = true;  // words that are longer than a line
  bool at_hyphens = true;        // also between the parts of words with hyphens
  std::string separator = "\n";  // of the lines
};
// Breaks each line of a text into lines of at most a width.
absl::StatusOr<std::string> WrapWords(Interpreter& run, std::string_view text, const WordWrap& wrap);

// Returns true if a character has the class kIsUpper or kIsLower and no cased character has the other one.
bool IsAllOfCase(std::string_view text, uint8_t case_class);

}  // namespace onnxtrain::jinja
