// onnxtrain compare-runs: compares several runs in a table and on an HTML page.
#include <limits>
#include <nlohmann/json.hpp>

#include "frontend/base/files.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/report/html_report.h"
#include "tools/onnxtrain/report/run_table.h"

namespace onnxtrain::cli {
namespace {

// Returns the summaries by folder; null for a run without one.
std::string SummariesJson(const std::vector<RunRecord>& runs) {
  nlohmann::ordered_json json;
  for (const RunRecord& run : runs) json[run.folder] = ParseJson<OrderedJson>(run.summary);
  for (auto& summary : json) {
    if (summary.is_discarded()) summary = nullptr;
  }
  return WriteJson(json, 2) + "\n";
}

}  // namespace

absl::StatusOr<int> RunCompareRuns(const TrainConfig& config) {
  if (config.runs.empty())
    return Invalid("compare-runs: name the folders of runs: onnxtrain compare-runs runs/a runs/b");
  std::vector<RunRecord> runs;
  for (const std::string& folder : config.runs) {
    ASSIGN_OR_RETURN(runs.emplace_back(), ReadRun(folder));
  }
  if (!config.out.empty()) RETURN_IF_ERROR(WriteTextFile(config.out, HtmlComparison(runs)));
  const auto terminal = StdoutTerminal();
  const size_t width = terminal ? terminal->columns : std::numeric_limits<size_t>::max();
  RETURN_IF_ERROR(Print(config.json ? SummariesJson(runs) : FormatTable(CompareRuns(runs), width)));
  return kDone;
}

}  // namespace onnxtrain::cli
