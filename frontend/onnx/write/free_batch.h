// Merges models for fixed batch sizes into one model for any batch size.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace onnxtrain {

// A model that SerializeGraph wrote for one batch.
struct SizedModel {
  int64_t batch = 0;
  std::string bytes;
};

// Returns a model whose extents and constants are computed from the first extent of an input, dimension "batch".
// `models` are three of the same graph at different batches. Constants may be a + b·batch, a + b/batch or 1/(a +
// b/batch), and extents along which they repeat a + b·batch; the third model verifies the formulas. Fails, naming the
// constant or node, if it depends on the batch in another way.
absl::StatusOr<std::string> FreeBatch(std::span<const SizedModel> models);

}  // namespace onnxtrain
