// Several runs side by side.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "tools/onnxtrain/report/run_record.h"

namespace onnxtrain::cli {

struct RunTable {
  std::vector<std::string> header;             // "", then one name per run
  std::vector<std::vector<std::string>> rows;  // what differs or was measured; a text for each column
};

// Results first, then the configuration where it differs between the runs.
RunTable CompareRuns(const std::vector<RunRecord>& runs);

// Aligned columns. Where they are wider than a terminal of `width` columns, in blocks below each other.
std::string FormatTable(const RunTable& table, size_t width = std::numeric_limits<size_t>::max());

}  // namespace onnxtrain::cli
