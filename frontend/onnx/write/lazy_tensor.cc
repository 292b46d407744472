#include "frontend/onnx/write/lazy_tensor.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "frontend/onnx/read/file.h"
#include "frontend/onnx/recover/weight_index.h"

namespace onnxtrain {
namespace {

constexpr int64_t kBlockBytes = int64_t{1} << 20;

}  // namespace

LazyTensor::LazyTensor(HostTensor value) : type_(value.type()) {
  read_ = [value = std::make_shared<HostTensor>(std::move(value))](int64_t begin, int64_t count) {
    const size_t offset = static_cast<size_t>(begin) * DTypeSize(value->dtype());
    return HostTensor({value->dtype(), {count}}, value, value->bytes().data() + offset);
  };
}

HostTensor LazyTensor::Whole() const { return Read(0, type_.elements()).Reshaped(type_.shape); }

bool LazyTensor::ForEachBlock(const std::function<bool(int64_t begin, const HostTensor& block)>& visit) const {
  const int64_t elements = bytes() == 0 ? 0 : type_.elements();
  const int64_t count = kBlockBytes / static_cast<int64_t>(DTypeSize(dtype()));
  for (int64_t begin = 0; begin < elements; begin += count) {
    const HostTensor block = Read(begin, std::min(count, elements - begin));
    const bool goes_on = visit(begin, block);
    ReleaseMappedPages(block.bytes());
    if (!goes_on) return false;
  }
  return true;
}

bool LazyTensor::SameBytes(const HostTensor& other) const {
  const LazyTensor view(other);
  return type_ == other.type() && ForEachBlock([&](int64_t begin, const HostTensor& block) {
           const HostTensor expected = view.Read(begin, block.size());
           const bool same = block.SameBytes(expected);
           ReleaseMappedPages(expected.bytes());
           return same;
         });
}

LazyTensor LazyTensor::CastTo(DType dtype) const {
  if (dtype == type_.dtype) return *this;
  return {{dtype, type_.shape}, [source = *this, dtype](int64_t begin, int64_t count) {
            const HostTensor block = source.Read(begin, count);
            HostTensor cast = block.CastTo(dtype);
            ReleaseMappedPages(block.bytes());
            return cast;
          }};
}

LazyTensor LazyTensor::Map(double (*f)(double)) const {
  return {type_, [source = *this, f](int64_t begin, int64_t count) {
            HostTensor block = source.Read(begin, count).Clone();
            for (int64_t i = 0; i < count; ++i) block.Set(i, f(block.At(i)));
            return block;
          }};
}

LazyTensor Transpose(const HostTensor& matrices) {
  const auto read = [matrices](int64_t begin, int64_t count) {
    constexpr int64_t kTile = 256;  // columns of the result per pass, so that several rows use the same cache lines
    const int64_t rows = matrices.shape().back(), columns = matrices.shape().end()[-2], end = begin + count;
    const size_t size = DTypeSize(matrices.dtype());
    HostTensor result({matrices.dtype(), {count}});
    const std::byte* from = matrices.bytes().data();
    std::byte* to = result.mutable_bytes().data();
    for (int64_t tile = 0; tile < columns; tile += kTile) {
      for (int64_t row = begin / columns; row * columns < end; ++row) {  // over all matrices
        const int64_t start = row * columns, source = row / rows * rows * columns + row % rows;
        const int64_t last = std::min(start + std::min(tile + kTile, columns), end);
        for (int64_t i = std::max(start + tile, begin); i < last; ++i)
          std::memcpy(to + (i - begin) * size, from + (source + (i - start) * rows) * size, size);
      }
    }
    return result;
  };
  return {{matrices.dtype(), TransposedShape(matrices.shape())}, read};
}

LazyTensor Concat(Type type, std::vector<LazyTensor> parts) {
  const auto read = [dtype = type.dtype, parts = std::move(parts)](int64_t begin, int64_t count) {
    HostTensor result({dtype, {count}});
    std::span<std::byte> to = result.mutable_bytes();
    int64_t start = 0;  // first element of the part
    for (const LazyTensor& part : parts) {
      const int64_t size = part.type().elements();
      const int64_t first = std::max(begin, start), last = std::min(begin + count, start + size);
      if (first < last) {
        const HostTensor block = part.Read(first - start, last - first);
        std::ranges::copy(block.bytes(), to.begin());
        to = to.subspan(block.bytes().size());
      }
      start += size;
    }
    return result;
  };
  return {std::move(type), read};
}

LazyTensor Slice(const LazyTensor& tensor, int64_t begin, int64_t count) {
  return {{tensor.dtype(), {count}},
          [tensor, begin](int64_t first, int64_t n) { return tensor.Read(begin + first, n); }};
}

}  // namespace onnxtrain
