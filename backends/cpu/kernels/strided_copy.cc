#include "backends/cpu/kernels/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/runtime/parallel.h"

namespace onnxtrain::cpu {
namespace {

constexpr int64_t kTile = 32;

template <typename F>
void WithSize(size_t element_size, F&& f) {
  switch (element_size) {
    case 1:
      return f(uint8_t());
    case 2:
      return f(uint16_t());
    case 4:
      return f(uint32_t());
    default:
      return f(uint64_t());
  }
}

}  // namespace

StridedCopy::StridedCopy(const Shape& extents, const Strided& to, const Strided& from, size_t element_size)
    : element_size_(element_size), to_offset_(to.offset), from_offset_(from.offset) {
  const Shape strides[] = {to.strides, from.strides};
  loop_ = MakeLoop(extents, strides);
  const size_t axes = loop_.extents.size();
  const OperandOffsets inner = loop_.strides[axes - 1];
  if (inner[0] != 1 || inner[1] == 1 || inner[1] == 0) return;
  for (size_t a = 0; a + 1 < axes; ++a) {
    if (loop_.strides[a][1] != 1) continue;
    tiled_ = true;
    across_ = loop_.extents[axes - 1];
    along_ = loop_.extents[a];
    to_step_ = loop_.strides[a][0];
    from_step_ = inner[1];
    loop_.extents.pop_back();
    loop_.strides.pop_back();
    loop_.extents.erase(loop_.extents.begin() + a);
    loop_.strides.erase(loop_.strides.begin() + a);
    loop_.extents.push_back(1);  // the inner loop is the tile
    loop_.strides.push_back({});
    return;
  }
}

template <typename T>
void StridedCopy::Rows(T* to, const T* from) const {
  const int64_t to_step = loop_.InnerStride(0), from_step = loop_.InnerStride(1);
  Parallel(loop_.size(), 1, [&](int64_t begin, int64_t end) {
    ForRows(loop_, begin, end, [&](const OperandOffsets& at, int64_t count) {
      T* y = to + at[0];
      const T* x = from + at[1];
      if (to_step == 1 && from_step == 1) {
        std::memcpy(y, x, count * sizeof(T));
      } else if (to_step == 1 && from_step == 0) {
        std::fill_n(y, count, *x);
      } else {
        for (int64_t i = 0; i < count; ++i) y[i * to_step] = x[i * from_step];
      }
    });
  });
}

template <typename T>
void StridedCopy::Tiles(T* to, const T* from) const {
  const int64_t bands = (along_ + kTile - 1) / kTile;
  Parallel(loop_.rows() * bands, 2 * across_ * std::min(along_, kTile), [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / bands, first = task % bands * kTile, last = std::min(along_, first + kTile);
      ForRows(loop_, row, row + 1, [&](const OperandOffsets& at, int64_t) {
        for (int64_t block = 0; block < across_; block += kTile) {
          const int64_t stop = std::min(across_, block + kTile);
          for (int64_t j = first; j < last; ++j) {
            T* y = to + at[0] + j * to_step_;
            const T* x = from + at[1] + j;
            for (int64_t i = block; i < stop; ++i) y[i] = x[i * from_step_];
          }
        }
      });
    }
  });
}

void StridedCopy::Run(void* to, const void* from) const {
  WithSize(element_size_, [&]<typename T>(T) {
    T* y = static_cast<T*>(to) + to_offset_;
    const T* x = static_cast<const T*>(from) + from_offset_;
    tiled_ ? Tiles(y, x) : Rows(y, x);
  });
}

void Fill(void* to, int64_t n, const void* pattern, size_t element_size) {
  WithSize(element_size, [&]<typename T>(T value) {
    std::memcpy(&value, pattern, sizeof(T));
    Parallel(n, 1, [&](int64_t begin, int64_t end) { std::fill_n(static_cast<T*>(to) + begin, end - begin, value); });
  });
}

}  // namespace onnxtrain::cpu
