// Searches for recomputations that lower the peak memory of a training graph for little time.
//
// Candidate schedules come from four sources and are compared by their simulated peak:
//   - minimum cuts of the joint graph under a price per byte, uniform or per step, as in PyTorch's partitioner. Node v
//     becomes in → out with capacity price·bytes; source → in has the time of v; out → in along operands, and out →
//     sink where the backward pass reads v, are uncuttable. (Jain et al., "Checkmate", pose the problem.)
//   - a dynamic program over chains of blocks (chain.cc)
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

// Chooses the rematerialization of chains of blocks, such as the layers of an encoder or residual blocks.
//
// The forward pass is cut into blocks at points that few bytes cross. A dynamic program over ranges of blocks and their
// remaining memory decides for every run of a block whether it keeps its inner values (all, or those of one of the
// given schedules), only the values that cross its end, or none; a block may run several times. This is the program of
// Beaumont et al. ("Optimal checkpointing for heterogeneous chains", 1911.13214), extended by schedules inside a block.
// Peaks are estimates from blocks simulated one at a time.
//
// Returns schedules for decreasing amounts of memory, from the fastest to the smallest. `inside`: schedules to choose
// from inside each block. Empty if the graph has only one block.
std::vector<RecomputeSchedule> SolveChain(const RecomputeCostModel& model,
                                          const std::vector<RecomputeSchedule>& inside);

// Returns the bytes that are live from each candidate to later ones, by index of the candidate.
std::vector<int64_t> CrossingBytes(const RecomputeCostModel& model);

}  // namespace onnxtrain
