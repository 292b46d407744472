// What the stages of a pipeline take and send, from plans alone.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct StagePlan {
  double time_share = 0;  // of the predicted time of a micro-batch
  SessionMemory memory;
  int64_t sent_bytes = 0;  // in an update, without the exchange of losses
};

// Plans updates over `samples` samples on as many ranks as `options.pipeline` has stages. Allocates nothing on the
// device.
absl::StatusOr<std::vector<StagePlan>> PlanStages(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                                  SessionOptions options, int64_t samples);

}  // namespace onnxtrain
