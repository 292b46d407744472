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
// Splits at the line ends that Python recognizes.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// Replaces at most `count` occurrences, or all if it is negative.
absl::StatusOr<std::string> Replace(Interpreter& run, std::string_view text, std::string_view from, std::string_view to,
                                    int64_t count = -1);

// Returns how often a text occurs, without overlaps, up to a limit.
int64_t CountOccurrences(std::string_view text, std::string_view part, int64_t limit);

}  // namespace onnxtrain::jinja
