// Text that fits a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace onnxtrain::cli {

// Columns that UTF-8 takes: two for the wide characters of East Asia and for emoji, none for combining marks.
size_t TextColumns(std::string_view text);

// The beginning of `text` with "…", where it takes more than `columns`, which is at least 1.
std::string ClipText(std::string_view text, size_t columns);

}  // namespace onnxtrain::cli
