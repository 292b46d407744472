#include "optim/parallel/tensor/axis_split.h"

#include <cstring>
#include <functional>

namespace onnxtrain {
namespace {

// Calls `visit` with the offset in the whole, the offset in the part, and the bytes of each contiguous piece.
void VisitPieces(const Type& whole, const AxisSplit& split, int rank, int ranks,
                 const std::function<void(size_t whole, size_t part, size_t bytes)>& visit) {
  const ElementRuns runs = FindRuns(whole.shape, split, rank, ranks);
  const size_t element = DTypeSize(whole.dtype);
  for (int64_t at = runs.begin, part = 0; at < whole.elements(); at += runs.stride, part += runs.length)
    visit(at * element, part * element, runs.length * element);
}

}  // namespace

bool CanSplit(const Shape& shape, const AxisSplit& split, int ranks) {
  return split.axis < std::ssize(shape) && shape[split.axis] > 0 && shape[split.axis] % (split.blocks * ranks) == 0;
}

Shape PartShape(Shape shape, const AxisSplit& split, int ranks) {
  shape[split.axis] /= ranks;
  return shape;
}

ElementRuns FindRuns(const Shape& shape, const AxisSplit& split, int rank, int ranks) {
  const int64_t inner = NumElements({shape.begin() + split.axis + 1, shape.end()});
  const int64_t length = shape[split.axis] / split.blocks / ranks * inner;
  return {.begin = rank * length, .length = length, .stride = ranks * length};
}

HostTensor TakePart(const HostTensor& whole, const AxisSplit& split, int rank, int ranks) {
  HostTensor part({whole.dtype(), PartShape(whole.shape(), split, ranks)});
  VisitPieces(whole.type(), split, rank, ranks, [&](size_t from, size_t to, size_t bytes) {
    std::memcpy(part.mutable_bytes().data() + to, whole.bytes().data() + from, bytes);
  });
  return part;
}

void PutPart(const HostTensor& part, const AxisSplit& split, int rank, int ranks, HostTensor* whole) {
  VisitPieces(whole->type(), split, rank, ranks, [&](size_t to, size_t from, size_t bytes) {
    std::memcpy(whole->mutable_bytes().data() + to, part.bytes().data() + from, bytes);
  });
}

}  // namespace onnxtrain
