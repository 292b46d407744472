// Makes messages about a user's file printable on one line, and measures text of a terminal.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace onnxtrain {

// Returns a name for a message of one line: control characters become '?', long names are truncated.
std::string Printable(std::string_view name);
// Does the same for a whole message, with a higher limit.
std::string PrintableLine(std::string_view message);
// Returns the same error with such a message.
absl::Status OneLine(const absl::Status& status);
// Terminal columns of UTF-8 text, as if every character took one.
size_t CountColumns(std::string_view text);

}  // namespace onnxtrain
