// Process-wide settings: threads, environment variables, signals, and the place among the ranks of a distributed run.
#pragma once

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "optim/config/config.h"

namespace onnxtrain::cli {

// Sets thread counts, wait policy and, where the CPU has AVX-512, OpenBLAS's core type. libgomp and OpenBLAS read them
// when they are loaded, so this must come before CreateBackend. Keeps what the user has set.
void SetEnvironment(int threads);

// Turns writes to a closed pipe into errors instead of signals.
void IgnoreBrokenPipes();

// Ends the process with one line and exit code 1 if a mapped model file is truncated while it is read (SIGBUS).
void ReportTruncatedFiles();

struct SignalFlags {
  const std::atomic<bool>* stop;  // requests the end of the run: see CatchSignals
  std::atomic<bool>* save;        // requests a checkpoint; reset by the code that saves
};

// Makes SIGINT, SIGTERM and SIGHUP set `stop`, and SIGUSR1 set `save`. SIGINT and SIGHUP stay ignored if they were, as
// under nohup. `stop` cancels the preparation of a model; if that does not react within some seconds, the process ends.
// A second signal to stop ends the process at once. Further calls return the same flags.
SignalFlags CatchSignals();

// One process of a distributed run, as described by its launcher: `onnxtrain launch`, torchrun, srun or mpirun.
struct Rank {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this machine
  std::string host;                    // host of rank 0, and a free port there
  int port = 0;
  std::string file;        // rendezvous file, instead of host and port
  bool divides = false;    // the ranks must divide the CPUs of the machine themselves
  bool collected = false;  // `onnxtrain launch` collects stderr

  bool alone() const { return size == 1; }
};

// Reads the rank from the environment; alone() if no launcher has set it. Errors name the invalid variable.
absl::StatusOr<Rank> ReadRank();

// The variable that `onnxtrain launch` sets to Rank::file, besides those of torchrun.
inline constexpr char kMeetingFile[] = "ONNXTRAIN_MEETING_FILE";

// Binds this process to an equal share of the available CPUs, and limits it to its share of the memory. Call it before
// any thread starts.
void DivideMachine(const Rank& rank);

// Limits the number of threads, which must be equal on all ranks so that reductions do not depend on the rank.
void LimitThreads(int threads);

// Redirects stderr to the file `folder`/rank-R.log; rank 0 prints it as well. Appends to the file, unless the run
// configured by `given` replaces another.
absl::Status LogToFile(const Rank& rank, const TrainConfig& given, const std::string& folder);

// Writes a line to the log of a rank other than 0, if it has one; with `prints`, also to the original stderr.
void LogAsRank(const Rank& rank, const std::string& line, bool prints);

}  // namespace onnxtrain::cli
