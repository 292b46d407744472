// The processes of a distributed run, which a launcher starts together: `onnxtrain launch`, torchrun, srun or mpirun.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "optim/config/config.h"

namespace onnxtrain::cli {

struct Rank {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among those on this machine
  std::string host;                    // of rank 0, and a port that is free there
  int port = 0;
  std::string file;        // for the ranks to meet, in place of host and port
  bool divides = false;    // the launcher leaves it to the ranks to divide the CPUs of the machine
  bool collected = false;  // `onnxtrain launch` reads what is written to stderr

  bool alone() const { return size == 1; }
};

// From the environment; alone where no launcher has set it. Fails, naming the variable, where it is no rank.
absl::StatusOr<Rank> ReadRank();

// Variables that `onnxtrain launch` sets besides those of torchrun.
inline constexpr char kMeetingFile[] = "ONNXTRAIN_MEETING_FILE";

// Binds this process to its share of the CPUs that it may use, all shares of one size, and takes its share of the
// memory. Call it before a thread is started.
void DivideMachine(const Rank& rank);

// Has all ranks use the same number of threads at most: reductions must not depend on the rank.
void LimitThreads(int threads);

// Logs of the ranks of a distributed run.

// Has everything that is printed to stderr from now on go to the file `folder`/rank-R.log. Only rank 0 prints it as
// well. Lines that the file has stay, unless the run of the flags `given` replaces another.
absl::Status LogToFile(const Rank& rank, const TrainConfig& given, const std::string& folder);

// Logs a line of a rank other than 0, where it has a log. `prints`: to the stderr that the process was started with,
// too.
void LogAsRank(const Rank& rank, const std::string& line, bool prints);

}  // namespace onnxtrain::cli
