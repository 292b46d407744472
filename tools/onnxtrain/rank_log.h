// Logs of the ranks of a distributed run.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "optim/config/config.h"
#include "tools/onnxtrain/ranks.h"

namespace onnxtrain::cli {

// Has everything that is printed to stderr from now on go to the file `folder`/rank-R.log. Only rank 0 prints it as
// well. Lines that the file has stay, unless the run of the flags `given` replaces another.
absl::Status LogToFile(const Rank& rank, const TrainConfig& given, const std::string& folder);

// Logs a line of a rank other than 0, where it has a log. `prints`: to the stderr that the process was started with,
// too.
void LogAsRank(const Rank& rank, const std::string& line, bool prints);

}  // namespace onnxtrain::cli
