// Chooses the number of threads of a run.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "optim/plan/training_run.h"
#include "optim/step/session.h"

namespace onnxtrain {

// The most loader workers that auto chooses. Each holds batches in memory; decoding pictures for a GPU needs the most.
inline constexpr int kMostAutoWorkers = 16;

// Returns the number of compute threads: config.threads if above 0, else OMP_NUM_THREADS if the user set it, else
// CpuCount(); at most OMP_THREAD_LIMIT and CpuCount().
int ComputeThreads(const TrainConfig& config);
// Returns a line for users if config.threads or OMP_NUM_THREADS exceeds the number of CPUs; else "".
std::string DescribeThreadLimit(const TrainConfig& config);

// Returns the smallest number of threads that is within 5 % of the fastest. `seconds` is by number of threads and not
// empty.
int FewestFastThreads(const std::map<int, double>& seconds);

// Returns the number of threads (0: all) for forward and backward pass if no timing is needed, else nullopt: 1 if no
// node is large enough to share, all if there is much work. Graphs of very many nodes, whose compilation for timing
// takes long, are decided too: all if large nodes have most of the work, else 1.
std::optional<int> ThreadsByWork(const Graph& micro);

// Makes the backend of config.backend. On the cpu backend, chooses the number of threads if neither config.threads nor
// OMP_NUM_THREADS sets it and a micro-batch is so small that waking threads may cost more than it saves: by
// ThreadsByWork, otherwise by timing forward and backward pass, the fewest of 1, 2, 4, … that are as fast as any. Sets
// *threads to it; a run with that number set makes no choice.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendForModel(const std::shared_ptr<PreparedModels>& models,
                                                             const SessionOptions& options,
                                                             const BackendFactory& make_backend,
                                                             const TrainConfig& config, int64_t* threads);

}  // namespace onnxtrain
