// The subcommands: one function each, in a file of its name. The result is the exit code; an error is bad usage or
// input (exit 1), printed as one line.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/config/config.h"

namespace onnxtrain::cli {

struct Command {
  const char* name;
  unsigned task;        // of ConfigTask: which flags it has
  const char* summary;  // one line for --help
  absl::StatusOr<int> (*run)(const TrainConfig& config);
  const char* words = "";  // CommandSpec::words
  // In place of run and flags: takes all words, its own name first, and has a help of its own.
  absl::StatusOr<int> (*run_words)(const std::vector<std::string>& words) = nullptr;
};

absl::StatusOr<int> RunTrain(const TrainConfig& config);
absl::StatusOr<int> RunEval(const TrainConfig& config);
absl::StatusOr<int> RunPredict(const TrainConfig& config);
absl::StatusOr<int> RunGrad(const TrainConfig& config);
absl::StatusOr<int> RunInspect(const TrainConfig& config);
absl::StatusOr<int> RunCompare(const TrainConfig& config);
absl::StatusOr<int> RunExport(const TrainConfig& config);
absl::StatusOr<int> RunBench(const TrainConfig& config);
absl::StatusOr<int> RunPlan(const TrainConfig& config);
absl::StatusOr<int> RunTokenize(const TrainConfig& config);
absl::StatusOr<int> RunMonitor(const TrainConfig& config);
absl::StatusOr<int> RunCompareRuns(const TrainConfig& config);
absl::StatusOr<int> RunLaunch(const std::vector<std::string>& words);
std::string LaunchHelp();

}  // namespace onnxtrain::cli
