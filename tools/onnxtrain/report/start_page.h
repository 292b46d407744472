// The pages that a training run prints before its first step and after its last.
#pragma once

#include <string>
#include <vector>

#include "optim/plan/export_graphs.h"
#include "optim/plan/training_run.h"
#include "optim/record/telemetry/summary.h"

namespace onnxtrain::cli {

// Describes the decisions of a run, each with the flags that override it: about 15 lines, without a final newline. With
// `verbose`, every section is complete and a list of all defaults follows. `resolved` is the configuration with the
// decisions filled in. Fields are named in backquotes (see FieldsToFlags).
std::string StartPage(const TrainingRun& run, const TrainConfig& resolved);

// Describes the result of a run: losses, evaluation, times, memory and files.
std::string EndPage(const RunSummary& summary, const std::string& folder, const std::vector<std::string>& files);

// Compares the planned with the measured bytes of a process.
std::string DescribeMemory(const SessionMemory& planned, int64_t measured);

// Returns the choices that make the plan of a run fit its memory budget, a line each, with their flags.
std::vector<std::string> BudgetChoices(const TrainingRun& run);

// Formats "label  text" with the label in a column of fixed width; a row without a label continues the row above.
std::string PageRow(const std::string& label, const std::string& text);

// Describes graphs that were written for other runtimes.
std::string DescribeGraphs(const ExportedGraphs& exported);

}  // namespace onnxtrain::cli
