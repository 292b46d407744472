// Rows of tensors whose first axis is the batch.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Copies the outputs of samples [begin, begin + count) into *all, which the call with begin = 0 allocates for `total`
// samples. Keeps the last of outputs without a batch axis. Fails where the samples have outputs of several sizes.
absl::Status PlaceRows(HostTensor* all, const HostTensor& part, int64_t begin, int64_t count, int64_t total);

// The first `rows` rows.
HostTensor FirstRows(const HostTensor& tensor, int64_t rows);

// The tensor's rows, then its last one until there are `rows`.
HostTensor RepeatLastRow(const HostTensor& tensor, int64_t rows);

}  // namespace onnxtrain
