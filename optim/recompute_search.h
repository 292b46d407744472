// Finds what to run again so that a training graph needs less memory for little time.
//
// Four sources of choices, each improved by local flips, all judged by the simulated peak and not by sums of bytes:
// minimum cuts of the joint graph under a price per byte, uniform and per step (v → (in, out); in → out costs price·bytes, the
// source → in costs the time of v, out → in is uncuttable along operands, out → sink where the backward pass reads v; Jain et
// al. "Checkmate" pose the problem, the cut is that of PyTorch's partitioner); a dynamic program over chains of blocks
// (recompute_chain.h); segments between the narrowest places (Chen et al., 1604.06174); and descents from the choice before.
// Limits are counts, never clocks: the same graph gives the same choices.
#pragma once

#include <vector>

#include "optim/recompute_model.h"

namespace onnxtrain {

struct RecomputeChoice {
  Again again;
  int64_t peak = 0;         // simulated
  double extra_seconds = 0;
};

// Everything that is not a product or another expensive operator.
RecomputeChoice RecomputeCheap(const RecomputeModel& model);

// √n segments, n being the number of expensive nodes of the forward pass: only what crosses their borders is kept.
RecomputeChoice RecomputeSegments(const RecomputeModel& model, int segments);
RecomputeChoice RecomputeSqrt(const RecomputeModel& model);

// The choices that no other found beats in both peak and time, from the fastest (nothing runs again) to the smallest.
std::vector<RecomputeChoice> RecomputeFrontier(const RecomputeModel& model);

}  // namespace onnxtrain
