// Process-wide settings: threads, environment variables, signals.
#pragma once

#include <atomic>
#include <string>

namespace onnxtrain::cli {

// Sets thread counts, wait policy and, where the CPU has AVX-512, OpenBLAS's core type. libgomp and OpenBLAS read them
// when they are loaded, so this must come before CreateBackend. Keeps what the user has set.
void SetEnvironment(int threads);

// Turns writes to a closed pipe into errors instead of signals.
void IgnoreBrokenPipes();

// Makes reading from a model file that is truncated meanwhile end the process with one line and exit code 1.
void ReportTruncatedFiles();

struct SignalFlags {
  const std::atomic<bool>* stop;  // also ends preparations of models: see CatchSignals
  std::atomic<bool>* save;        // whoever has saved resets it
};

// Makes SIGINT, SIGTERM and SIGHUP set `stop`, and SIGUSR1 `save`. SIGINT and SIGHUP stay ignored where they were, as
// behind nohup. `stop` ends preparations with an error where they look at it, else with the process some seconds later.
// A second signal to stop ends the process at once. May be called again, for the flags.
SignalFlags CatchSignals();

}  // namespace onnxtrain::cli
