// What a training run prints before its first step and after its last.
#pragma once

#include <string>
#include <vector>

#include "optim/plan/export_graphs.h"
#include "optim/plan/training_run.h"
#include "optim/record/telemetry/summary.h"

namespace onnxtrain::cli {

// Model, data, loss and why, weights, batch arithmetic, optimizer, machine, output; then every default with the flag
// that overrides it, from ResolveConfig and the output folder. Many lines, the last without a newline. Names fields in
// backquotes: see FieldsToFlags.
std::string StartPage(const TrainingRun& run, const TrainConfig& resolved);

// The result, for people.
std::string EndPage(const RunSummary& summary, const std::string& folder, const std::vector<std::string>& files);

// Planned and measured bytes of a process.
std::string DescribeMemory(int64_t planned, int64_t measured);

// "label  text" rows, the label in a column of fixed width; a row without label continues the one above.
std::string PageRow(const std::string& label, const std::string& text);

// Describes graphs that were written for other runtimes.

std::string DescribeGraphs(const ExportedGraphs& exported);

}  // namespace onnxtrain::cli
