// Declares the subcommands, each defined in the file of its name, and their shared functions: exit codes, output,
// backend. A subcommand returns its exit code, or an error for bad usage or input (exit 1), which is printed as one
// line.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"

namespace onnxtrain::cli {

struct Command {
  const char* name;
  unsigned task;        // a ConfigTask, which selects the flags
  const char* summary;  // one line for --help
  absl::StatusOr<int> (*run)(const TrainConfig& config);
  const char* words = "";  // CommandSpec::words
  // If set, replaces `run` and the flags: receives all words, the name first; `help` returns the text of its --help.
  absl::StatusOr<int> (*run_words)(const std::vector<std::string>& words) = nullptr;
  std::string (*help)() = nullptr;
};

// Every subcommand; the first one is the default.
std::span<const Command> Commands();

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
absl::StatusOr<int> RunGenerate(const TrainConfig& config);
absl::StatusOr<int> RunMonitor(const TrainConfig& config);
absl::StatusOr<int> RunCompareRuns(const TrainConfig& config);
// Implements `onnxtrain bench --data`: measures how fast samples become batches.
absl::StatusOr<int> BenchData(const TrainConfig& config);
absl::StatusOr<int> RunLaunch(const std::vector<std::string>& words);
std::string LaunchHelp();
absl::StatusOr<int> RunReference(const std::vector<std::string>& words);
std::string ReferenceHelp();

// The documented exit codes.
enum ExitCode { kDone = 0, kBadInput = 1, kFailed = 2, kRequirement = 3, kStopped = 75 };

// Prints text on stderr, unless --quiet.
void LogInfo(const TrainConfig& config, const std::string& text);
// Prints "onnxtrain: warning: …" on stderr, also with --quiet.
void Warn(const std::string& text);
// Returns the exit code of a subcommand that ends with an error, which main prints.
int ExitCodeOf(const absl::Status& error);
// Prints the error of a failed training. Returns kFailed.
int ReportFailure(const absl::Status& status);
// Prints every requirement that is not met. Returns kRequirement if there is one, else kDone.
int ReportUnmet(const std::vector<std::string>& unmet);
// Prints results on stdout. A closed pipe is not an error; a full disk is.
absl::Status Print(const std::string& text);

// Sets the environment that libraries read when they are loaded, then loads the backend.
absl::StatusOr<std::unique_ptr<Backend>> LoadBackend(const TrainConfig& config);
// Loads the backend `name` instead of --backend.
absl::StatusOr<std::unique_ptr<Backend>> LoadNamedBackend(TrainConfig config, const std::string& name);

// Returns "cpu on cpu: oneDNN 2.6.3, …".
std::string DescribeBackend(const Backend& backend);
// Returns "cnn.onnx, by pytorch 1.9, opset 9".
std::string DescribeModel(const OnnxModel& model);

struct TerminalSize {
  size_t columns = 80, rows = 24;
};
// Returns nullopt if stdout is not a terminal.
std::optional<TerminalSize> StdoutTerminal();

// Runs a subcommand on the words after the program's name, and returns the exit code; called by main and tests. Prints
// results on stdout, and progress and errors on stderr. Sets environment variables and handles signals, so a process
// must not run two at a time.
int RunProgram(const std::vector<std::string>& words);

// Returns true if a command line with this first word trains: `train`, a flag, or no word (null).
bool IsTrainCommand(const char* first_word);

// Replaces line breaks, since each message must be one line.
std::string OneLine(std::string_view text);

}  // namespace onnxtrain::cli
