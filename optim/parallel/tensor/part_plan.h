// What each rank of a tensor-parallel group takes and sends, from a plan alone.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "optim/parallel/traffic.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct PartPlan {
  SessionMemory memory;         // of one rank
  int64_t divided_weights = 0;  // trained ones
  int64_t trained_weights = 0;
  int64_t divided_elements = 0, trained_elements = 0;  // of whole weights
  int64_t exchanges = 0;                               // sums over the ranks in an update
  int64_t sent_bytes = 0;                              // by a rank in an update, without the exchange of losses
};

// Plans updates over `samples` samples on `options.tensor.count` ranks. Allocates nothing on the device.
absl::StatusOr<PartPlan> PlanPart(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                  SessionOptions options, int64_t samples);

}  // namespace onnxtrain
