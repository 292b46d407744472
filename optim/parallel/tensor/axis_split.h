// How an axis of a tensor is divided among ranks.
#pragma once

#include <cstdint>

#include "frontend/graph/host_tensor.h"
#include "optim/step/state_parts.h"

namespace onnxtrain {

// The axis consists of `blocks` equal blocks, and every rank has an equal part of each: rows of query, key and value in
// one weight are three blocks.
struct AxisSplit {
  int axis = 0;
  int64_t blocks = 1;

  bool operator==(const AxisSplit&) const = default;
};

// Has the axis equal parts for so many ranks?
bool CanSplit(const Shape& shape, const AxisSplit& split, int ranks);
// Of the part of a rank.
Shape PartShape(Shape shape, const AxisSplit& split, int ranks);
// Of the elements of a rank in a tensor of this shape.
ElementRuns FindRuns(const Shape& shape, const AxisSplit& split, int rank, int ranks);

HostTensor TakePart(const HostTensor& whole, const AxisSplit& split, int rank, int ranks);
// Writes what TakePart returns for the rank. The bytes of `whole` must be its own.
void PutPart(const HostTensor& part, const AxisSplit& split, int rank, int ranks, HostTensor* whole);

}  // namespace onnxtrain
