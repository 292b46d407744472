// Compares several runs in a table, and measures text on a terminal.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "optim/record/run_folder.h"

namespace onnxtrain::cli {

// Returns the columns that UTF-8 text takes: two for East Asian wide characters and emoji, none for combining marks.
size_t TextColumns(std::string_view text);

// Shortens `text` with "…" if it takes more than `columns` ≥ 1.
std::string ClipText(std::string_view text, size_t columns);

struct RunTable {
  std::vector<std::string> header;             // "", then one name per run
  std::vector<std::vector<std::string>> rows;  // one text per column
};

// Returns results first, then the fields of the configuration that differ between the runs.
RunTable CompareRuns(const std::vector<RunRecord>& runs);

// Aligns columns, and splits them into blocks if they exceed a terminal of `width` columns.
std::string FormatTable(const RunTable& table, size_t width = std::numeric_limits<size_t>::max());

}  // namespace onnxtrain::cli
