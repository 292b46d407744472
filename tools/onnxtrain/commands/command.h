// The subcommands: one function each, in a file of its name, and what they share: exit codes, output, the backend. The
// result is the exit code; an error is bad usage or input (exit 1), printed as one line.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/onnx/import.h"
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

// The exit codes of the contract.
enum ExitCode { kDone = 0, kBadInput = 1, kFailed = 2, kRequirement = 3, kStopped = 75 };

// For people, on stderr; not with --quiet.
void LogInfo(const TrainConfig& config, const std::string& text);
// On stderr, always: "onnxtrain: warning: …".
void Warn(const std::string& text);
// Returns the exit code of a subcommand that ends with an error, which main prints.
int ExitCodeOf(const absl::Status& error);
// Prints that training failed, and why. Returns kFailed.
int ReportFailure(const absl::Status& status);
// Prints every requirement that is not met. Returns kRequirement if there is one, else kDone.
int ReportUnmet(const std::vector<std::string>& unmet);
// Results, on stdout. A reader that went away is no error; a full disk is.
absl::Status Print(const std::string& text);

// Sets the environment that libraries read when they are loaded, then loads the backend.
absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const TrainConfig& config);
// The backend of that name in place of --backend.
absl::StatusOr<std::unique_ptr<Backend>> LoadNamedBackend(TrainConfig config, const std::string& name);

// "cpu on cpu: oneDNN 2.6.3, …"
std::string DescribeBackend(const Backend& backend);
// "cnn.onnx, by pytorch 1.9, opset 9"
std::string DescribeModel(const OnnxModel& model);

struct TerminalSize {
  size_t columns = 80, rows = 24;
};
// nullopt where stdout is a file or a pipe.
std::optional<TerminalSize> StdoutTerminal();

}  // namespace onnxtrain::cli
