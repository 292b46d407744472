// Several runs side by side.
#pragma once

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

// Aligned columns for a terminal.
std::string FormatTable(const RunTable& table);

}  // namespace onnxtrain::cli
