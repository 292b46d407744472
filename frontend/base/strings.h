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

// Returns a name from a user's file for use in a message of one line: control characters become '?', and long names are
// truncated.
std::string Printable(std::string_view name);
// Applies the rules of Printable to a whole message, with a higher limit.
std::string PrintableLine(std::string_view message);
// Applies PrintableLine to the message of an error.
absl::Status OneLine(const absl::Status& status);
// Returns the number of characters of UTF-8 text, which approximates its width on a terminal.
size_t CountColumns(std::string_view text);

// Returns the candidate nearest to the misspelled `word` (edit distance with transpositions), or "" if none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace onnxtrain
