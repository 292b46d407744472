#include "optim/step/batch_rows.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {

absl::Status PlaceRows(HostTensor* all, const HostTensor& part, int64_t begin, int64_t count, int64_t total) {
  // An output without a batch axis may have as many rows as some micro-batches have samples.
  const bool as_many = part.type().rank() > 0 && part.shape()[0] == count;
  const bool batched = as_many && (begin == 0 || (all->type().rank() > 0 && all->shape()[0] == total));
  if (!batched) {
    *all = part;
    return absl::OkStatus();
  }
  if (begin > 0 && !std::ranges::equal(std::span(all->shape()).subspan(1), std::span(part.shape()).subspan(1)))
    return Invalid("the samples of one batch have outputs of several sizes (`batch_size` 1, or one `image_size`)");
  if (begin == 0) {
    Shape shape = part.shape();
    shape[0] = total;
    *all = HostTensor({part.dtype(), shape});
  }
  const size_t row = part.bytes().size() / count;
  if (part.size() > 0) std::memcpy(all->mutable_bytes().data() + begin * row, part.bytes().data(), count * row);
  return absl::OkStatus();
}

HostTensor FirstRows(const HostTensor& tensor, int64_t rows) {
  Shape shape = tensor.shape();
  shape[0] = rows;
  HostTensor first({tensor.dtype(), shape});
  if (first.size() > 0) std::memcpy(first.mutable_bytes().data(), tensor.bytes().data(), first.bytes().size());
  return first;
}

HostTensor RepeatLastRow(const HostTensor& tensor, int64_t rows) {
  Shape shape = tensor.shape();
  const int64_t given = std::exchange(shape[0], rows);
  HostTensor padded({tensor.dtype(), shape});
  const size_t row = tensor.bytes().size() / given;
  for (int64_t i = 0; row > 0 && i < rows; ++i)
    std::memcpy(padded.mutable_bytes().data() + i * row, tensor.bytes().data() + std::min(i, given - 1) * row, row);
  return padded;
}

}  // namespace onnxtrain
