// The number of threads of a run.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "optim/plan/training_run.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Workers that automatic choices come to at most.

// Each holds batches in memory. Decoding pictures for a GPU takes most workers.
inline constexpr int kMostAutoWorkers = 16;

// Returns the number of threads for compute: config.threads if above 0, else OMP_NUM_THREADS if the user set it, else
// CpuCount(); no more than OMP_THREAD_LIMIT and CpuCount().
int ComputeThreads(const TrainConfig& config);
// Says so where config.threads or OMP_NUM_THREADS asks for more threads than there are CPUs; else returns "".
std::string DescribeThreadLimit(const TrainConfig& config);

// Returns the smallest number of threads that is within 5 % of the fastest. `seconds` by number of threads; not empty.
int FewestFastThreads(const std::map<int, double>& seconds);

// Returns the number of threads (0: all) for forward and backward pass where it needs no timing: one where no node
// is large enough for two, all where there is much work. Also for graphs of so many nodes that compiling them once more
// to time them takes long: there all, if large nodes have most of the work.
std::optional<int> ThreadsByWork(const Graph& micro);

// Makes the backend of config.backend. Where neither config.threads nor OMP_NUM_THREADS names a number of threads and
// a micro-batch is so small that waking threads may take longer than they save, chooses the number on the cpu backend:
// by ThreadsByWork, else the fewest of 1, 2, 4, … that are as fast as any, by timing forward and backward pass. Sets
// *threads to it; a run with that number set makes no choice.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendForModel(const std::shared_ptr<PreparedModels>& models,
                                                             const SessionOptions& options,
                                                             const BackendFactory& make_backend,
                                                             const TrainConfig& config, int64_t* threads);

}  // namespace onnxtrain
