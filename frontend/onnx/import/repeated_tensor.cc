#include "frontend/onnx/import/repeated_tensor.h"

#include <cstring>
#include <utility>

namespace onnxtrain {
namespace {

// Returns a tensor of the given shape, with the element of `from` at offset Σ index · stride for each index.
HostTensor CopyStrided(const HostTensor& from, const Shape& strides, Shape shape) {
  HostTensor to({from.dtype(), std::move(shape)});
  const Shape& extents = to.shape();
  const size_t element = DTypeSize(from.dtype());
  const bool rows = !extents.empty() && strides.back() == 1;
  const int64_t count = rows ? extents.back() : 1;
  std::byte* out = to.mutable_bytes().data();
  for (int64_t i = 0; i < to.size(); i += count, out += count * element) {
    int64_t at = 0, rest = i;
    for (size_t axis = extents.size(); axis-- > 0; rest /= extents[axis]) at += rest % extents[axis] * strides[axis];
    std::memcpy(out, from.bytes().data() + at * element, count * element);
  }
  return to;
}

}  // namespace

HostTensor TakeCorner(const HostTensor& tensor, Shape shape) {
  return CopyStrided(tensor, Strides(tensor.shape()), std::move(shape));
}

std::optional<HostTensor> Unrepeat(const HostTensor& tensor, const std::vector<bool>& axes) {
  Shape shape = tensor.shape();
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (axes[axis] && shape[axis] > 0) shape[axis] = 1;
  }
  HostTensor base = TakeCorner(tensor, std::move(shape));
  return Repeat(base, tensor.shape()).SameBytes(tensor) ? std::optional(std::move(base)) : std::nullopt;
}

HostTensor Repeat(const HostTensor& base, Shape shape) {
  Shape strides = Strides(base.shape());
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    if (base.shape()[axis] == 1) strides[axis] = 0;
  }
  return CopyStrided(base, strides, std::move(shape));
}

}  // namespace onnxtrain
