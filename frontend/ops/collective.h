// Operators in which the ranks of a group take part: values go from rank to rank within a program.
//
// All ranks of a group must run them in the same order. Their second output is a token, which the next one takes as its
// second input (passes/collectives.h), so that the order is a matter of data flow.
#pragma once

#include <string>

#include "frontend/ops/builder.h"

namespace onnxtrain {

// The group of all ranks, the default.
inline constexpr char kWorldGroup[] = "world";

// Waits for the oldest AllGather of a group that begins (its attribute `begins`), and returns what that has gathered:
// its first input, which nothing else reads.
inline constexpr char kAwaitGather[] = "AwaitGather";

struct RankGroup {
  std::string name = kWorldGroup;
  int64_t size = 1;
};

// Returns the sum over the ranks, equal on all of them. Gradient: the sum of the gradients of all ranks, as where the
// loss is the sum of their losses. `deterministic`: adds in the order of the ranks, with twice the memory.
Val AllReduce(Val x, const RankGroup& group, bool deterministic = false);
// The same where what follows is computed alike by all ranks: each has the whole gradient, which passes unchanged.
Val SumPartial(Val x, const RankGroup& group, bool deterministic = false);
// Returns x, which is equal on all ranks, of whose uses each rank has a part: the gradient is summed over the ranks.
Val SumGradient(Val x, const RankGroup& group, bool deterministic = false);
// Concatenates the values of all ranks along the axis, by rank. Gradient: ReduceScatter.
Val AllGather(Val x, const RankGroup& group, int64_t axis);
// Returns part r, of equal parts along the axis, of the sum over the ranks, on rank r. Adds in the order of the ranks.
// Gradient: AllGather.
Val ReduceScatter(Val x, const RankGroup& group, int64_t axis);

}  // namespace onnxtrain
