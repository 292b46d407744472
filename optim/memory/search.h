// Searches for recomputations that lower the peak memory of a training graph for little time.
//
// Candidate schedules come from four sources and are compared by their simulated peak:
//   - minimum cuts of the joint graph under a price per byte, uniform or per step, as in PyTorch's partitioner. Node v
//     becomes in → out with capacity price·bytes; source → in has the time of v; out → in along operands, and out →
//     sink where the backward pass reads v, are uncuttable. (Jain et al., "Checkmate", pose the problem.)
//   - a dynamic program over chains of blocks (chain.h)
//   - segments between the narrowest cuts of the forward pass (Chen et al., 1604.06174)
//   - greedy descents from a schedule to the next lower peak
// Local search improves each. Limits are counts, not times: the same graph gives the same schedules.
#pragma once

#include <vector>

#include "optim/memory/cost_model.h"

namespace onnxtrain {

struct RecomputeChoice {
  RecomputeSchedule recomputed;
  int64_t peak = 0;  // simulated
  double extra_seconds = 0;
};

// Recomputes every node except matrix products and other expensive operators.
RecomputeChoice RecomputeCheap(const RecomputeCostModel& model);

// Keeps only the values that cross segment borders. RecomputeSqrt: √n segments for n expensive nodes.
RecomputeChoice RecomputeSegments(const RecomputeCostModel& model, int segments);
RecomputeChoice RecomputeSqrt(const RecomputeCostModel& model);

// Returns the Pareto frontier of peak and time, from the fastest schedule (no recomputation) to the smallest.
std::vector<RecomputeChoice> RecomputeFrontier(const RecomputeCostModel& model);

}  // namespace onnxtrain
