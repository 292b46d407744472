// Makes one model for every batch size of models that were written for fixed ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace onnxtrain {

// The bytes of a model that SerializeGraph wrote for this batch.
struct SizedModel {
  int64_t batch = 0;
  std::string bytes;
};

// Returns a model whose extents and constants follow the first extent of an input, dimension "batch". `models`: three,
// of the same graph at different batches. Constants may be a + b·batch, a + b/batch or 1/(a + b/batch), and their
// extents a + b·batch where they repeat along them; the third model proves it. Fails, naming the constant or node,
// where something else depends on the batch.
absl::StatusOr<std::string> FreeBatch(std::span<const SizedModel> models);

}  // namespace onnxtrain
