// Writes report.html: results, curves, memory and samples of a run on one page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optim/plan/training_run.h"
#include "optim/record/quality.h"
#include "optim/record/recorder.h"
#include "optim/record/run_folder.h"
#include "optim/record/sample_answers.h"
#include "tools/onnxtrain/report/language_html.h"
#include "tools/onnxtrain/report/memory_timeline.h"

namespace onnxtrain::cli {

struct ReportContents {
  RunRecord record;
  std::string flags;                 // a flag file that repeats the run
  std::vector<std::string> classes;  // names of classes, or of numeric targets; may be empty
  std::optional<Quality> before, after;
  std::optional<MemoryTimeline> memory;
  std::vector<SampleResult> worst;                // the samples of `after` with the greatest loss
  std::vector<std::string> pictures;              // HTML of each worst sample; may be ""
  std::vector<std::string> places;                // location of each worst sample: "data.csv: row 17"
  std::optional<ReportTokens> tokens;             // of a language model
  std::vector<SampleAnswer> answers;              // of `sample_prompts`
  std::shared_ptr<const Alphabet> alphabet = {};  // of recognized texts; else null
};

std::string HtmlReport(const ReportContents& contents);

inline constexpr char kReportFile[] = "report.html";
// Writes report.html to the folder of a run that has ended.
absl::Status WriteReport(const TrainingRun& run, const RunOutcome& outcome, const OutputFolder& folder);

// Returns a page with several runs in one table and one set of plots.
std::string HtmlComparison(const std::vector<RunRecord>& runs);

// Returns the plots for which a set of runs has data.
std::string CurvesHtml(const std::vector<RunRecord>& runs);

}  // namespace onnxtrain::cli
