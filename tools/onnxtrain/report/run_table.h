// Several runs side by side.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "optim/record/run_folder.h"

namespace onnxtrain::cli {

// Text that fits a terminal.

// Columns that UTF-8 takes: two for the wide characters of East Asia and for emoji, none for combining marks.
size_t TextColumns(std::string_view text);

// The beginning of `text` with "…", where it takes more than `columns`, which is at least 1.
std::string ClipText(std::string_view text, size_t columns);

struct RunTable {
  std::vector<std::string> header;             // "", then one name per run
  std::vector<std::vector<std::string>> rows;  // what differs or was measured; a text for each column
};

// Results first, then the configuration where it differs between the runs.
RunTable CompareRuns(const std::vector<RunRecord>& runs);

// Aligned columns. Where they are wider than a terminal of `width` columns, in blocks below each other.
std::string FormatTable(const RunTable& table, size_t width = std::numeric_limits<size_t>::max());

}  // namespace onnxtrain::cli
