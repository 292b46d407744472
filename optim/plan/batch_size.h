// Searches the largest micro-batch that fits, from plans alone.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/step/session.h"

namespace onnxtrain {

// Bytes that a session with this micro-batch would hold when it trains in global batches of `global_batch` samples.
// Nothing is allocated.
absl::StatusOr<SessionMemory> PlannedMemory(std::shared_ptr<PreparedModels> models, Backend& backend,
                                            SessionOptions options, int64_t micro_batch, int64_t global_batch);

// The largest size from 1 to `most` with peak(size) ≤ limit, peak being a nearly linear function that grows: a line
// through two sizes gives the first guess, bisection the rest. 0 where not even 1 fits. Errors are those of `peak`.
absl::StatusOr<int64_t> LargestFitting(const std::function<absl::StatusOr<int64_t>(int64_t)>& peak, int64_t limit,
                                       int64_t most);

}  // namespace onnxtrain
