// The subcommands: one function each, in a file of its name. Flags have been set. The result is the exit code; an error
// is bad usage or input (exit 1), printed as one line.
#pragma once

#include "absl/status/statusor.h"

namespace onnxtrain::cli {

struct Command {
  const char* name;
  const char* summary;  // one line for --help
  absl::StatusOr<int> (*run)();
};

absl::StatusOr<int> RunTrain();
absl::StatusOr<int> RunEval();
absl::StatusOr<int> RunPredict();
absl::StatusOr<int> RunGrad();
absl::StatusOr<int> RunInspect();
absl::StatusOr<int> RunCompare();
absl::StatusOr<int> RunExport();
absl::StatusOr<int> RunBench();
absl::StatusOr<int> RunPlan();

}  // namespace onnxtrain::cli
