// Bridges std::string_view and absl::string_view, which differ because Debian builds abseil as C++14. The project uses
// std::string_view and the functions below.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace onnxtrain {

inline std::string_view ToStd(absl::string_view s) { return {s.data(), s.size()}; }
inline absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }

namespace internal {
template <typename T>
decltype(auto) StrCatArg(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return ToAbsl(value);
  } else {
    return (value);
  }
}
}  // namespace internal

// absl::StrCat that also accepts std::string_view.
template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(internal::StrCatArg(args)...);
}

template <typename... Args>
void StrAppend(std::string* out, const Args&... args) {
  absl::StrAppend(out, internal::StrCatArg(args)...);
}

// Makes messages about a user's file printable on one line, and measures text of a terminal.

// Returns a name for a message of one line: control characters become '?', long names are truncated.
std::string Printable(std::string_view name);
// Does the same for a whole message, with a higher limit.
std::string PrintableLine(std::string_view message);
// Returns the same error with such a message.
absl::Status OneLine(const absl::Status& status);
// Terminal columns of UTF-8 text, as if every character took one.
size_t CountColumns(std::string_view text);

// Proposes what a misspelled word was meant to be.

// Returns the candidate that is nearest to `word` (edit distance with transpositions), or "" where none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace onnxtrain
