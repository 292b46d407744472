// Operators that communicate among the ranks of a group within a program.
//
// All ranks of a group must run them in the same order. To express that order as data flow, the second output is a
// token, which the next collective takes as its second input (passes/collectives.h).
#pragma once

#include <string>

#include "frontend/ops/builder.h"

namespace onnxtrain {

// The name of the group of all ranks.
inline constexpr char kWorldGroup[] = "world";

// Waits for the oldest AllGather in flight of its group (one with the attribute `begins`), whose output is input 0 of
// the AwaitGather, and returns the gathered value. No other node may read that output.
inline constexpr char kAwaitGather[] = "AwaitGather";

struct RankGroup {
  std::string name = kWorldGroup;
  int64_t size = 1;
};

// Returns the sum over the ranks, with equal bits on all of them. The gradient is the sum of the gradients of all
// ranks, which is right if the loss is the sum of their losses. `deterministic`: adds in rank order, with twice the
// memory.
Val AllReduce(Val x, const RankGroup& group, bool deterministic = false);
// Returns the sum over the ranks for computations that all ranks then repeat equally: every rank computes the whole
// gradient, so it is passed on unchanged.
Val SumPartial(Val x, const RankGroup& group, bool deterministic = false);
// Returns x, which must be equal on all ranks. The gradient is summed over the ranks, since each computes only a part
// of the uses of x.
Val SumGradient(Val x, const RankGroup& group, bool deterministic = false);
// Concatenates the values of all ranks along the axis, in rank order. Gradient: ReduceScatter.
Val AllGather(Val x, const RankGroup& group, int64_t axis);
// Splits the sum over the ranks into equal parts along the axis and returns part r on rank r. Adds in rank order.
// Gradient: AllGather.
Val ReduceScatter(Val x, const RankGroup& group, int64_t axis);

}  // namespace onnxtrain
