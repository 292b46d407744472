// report.html: what a run did, on one page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/plan/training_run.h"
#include "optim/record/quality.h"
#include "optim/record/recorder.h"
#include "optim/record/run_folder.h"
#include "tools/onnxtrain/report/memory_timeline.h"

namespace onnxtrain::cli {

struct ReportContents {
  RunRecord record;
  std::string flags;                 // a flag file that repeats the run
  std::vector<std::string> classes;  // names of classes, or of targets that are numbers; may be empty
  std::optional<Quality> before, after;
  std::optional<MemoryTimeline> memory;
  std::vector<SampleResult> worst;    // of `after`
  std::vector<std::string> pictures;  // HTML of each of `worst`; may be ""
  std::vector<std::string> places;    // of each of `worst`: "data.csv: row 17"
};

std::string HtmlReport(const ReportContents& contents);

inline constexpr char kReportFile[] = "report.html";
// Writes the page of a run that has ended, by its session and its folder, to report.html in the folder.
absl::Status WriteReport(const TrainingRun& run, const RunOutcome& outcome, const OutputFolder& folder);

// Several runs in one table and one set of plots.
std::string HtmlComparison(const std::vector<RunRecord>& runs);

// The plots that a set of runs has data for.
std::string CurvesHtml(const std::vector<RunRecord>& runs);

}  // namespace onnxtrain::cli
