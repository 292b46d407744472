// plan --ladder and bench --ladder: every way to train a model within less memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/base/units.h"
#include "optim/plan/training_run.h"
#include "optim/step/session.h"

namespace onnxtrain::cli {

// The kinds of memory that plans show side by side.
struct MemoryColumn {
  const char* key;
  int64_t SessionMemory::*bytes;
};

inline constexpr MemoryColumn kMemoryColumns[] = {
    {"parameters", &SessionMemory::parameters},   {"gradients", &SessionMemory::gradients},
    {"moments", &SessionMemory::moments},         {"packed", &SessionMemory::packed},
    {"activations", &SessionMemory::activations}, {"feeds", &SessionMemory::feeds}};

inline std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

using PrepareRun = std::function<absl::StatusOr<TrainingRun>(const TrainConfig& config)>;

// Returns the page, or JSON with --json, of the planned bytes and times of each rung (optim/plan/memory_ladder.h), and
// of adapters beside the frozen model, whose runs `prepare` makes.
absl::StatusOr<std::string> DescribeLadder(const TrainConfig& config, const TrainingRun& run,
                                           const PrepareRun& prepare);

// Runs `bench` on each rung in a separate process, without recomputation and within the least budget. Prints the
// planned and the measured bytes and the time of an update as soon as they are measured; with --json, the elements of
// one array.
absl::StatusOr<int> MeasureLadder(const TrainConfig& config);

}  // namespace onnxtrain::cli
