#include "frontend/ops/host_eval.h"

#include <cstring>

namespace onnxtrain {

Shape BroadcastStrides(const Shape& from, const Shape& to) {
  const Shape dense = Strides(from);
  Shape strides(to.size(), 0);
  const size_t lead = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1) strides[lead + i] = dense[i];
  }
  return strides;
}

void CopyElement(const HostTensor& x, int64_t j, HostTensor* y, int64_t i) {
  const size_t size = DTypeSize(x.dtype());
  std::memcpy(y->mutable_bytes().data() + i * size, x.bytes().data() + j * size, size);
}

HostTensor GatherStrided(const HostTensor& x, const Type& type, const Shape& strides, int64_t start) {
  HostTensor y(type);
  Walk<1>(type.shape, {strides}, {start},
          [&](int64_t i, const std::array<int64_t, 1>& at) { CopyElement(x, at[0], &y, i); });
  return y;
}

int64_t WrapAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrapSub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t WrapMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
int64_t SafeDiv(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? WrapSub(0, a) : a / b; }
int64_t SafeMod(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

int64_t FloorMod(int64_t a, int64_t b) {
  const int64_t r = SafeMod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t WrapPow(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  int64_t result = 1;
  for (; b > 0; b >>= 1, a = WrapMul(a, a)) {
    if (b & 1) result = WrapMul(result, a);
  }
  return result;
}

}  // namespace onnxtrain
