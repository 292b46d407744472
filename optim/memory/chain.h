// Chooses the rematerialization of chains of blocks, such as the layers of an encoder or residual blocks.
//
// The forward pass is cut into blocks at points that few bytes cross. A dynamic program over ranges of blocks and their
// remaining memory decides for every run of a block whether it keeps its inner values (all, or those of one of the
// given schedules), only the values that cross its end, or none; a block may run several times. This is the program of
// Beaumont et al. ("Optimal checkpointing for heterogeneous chains", 1911.13214), extended by schedules inside a block.
// Peaks are estimates from blocks simulated one at a time.
#pragma once

#include <vector>

#include "optim/memory/cost_model.h"

namespace onnxtrain {

// Returns schedules for decreasing amounts of memory, from the fastest to the smallest. `inside`: schedules to choose
// from inside each block. Empty if the graph has only one block.
std::vector<RecomputeSchedule> SolveChain(const RecomputeCostModel& model,
                                          const std::vector<RecomputeSchedule>& inside);

// Returns the bytes that are live from each candidate to later ones, by index of the candidate.
std::vector<int64_t> CrossingBytes(const RecomputeCostModel& model);

}  // namespace onnxtrain
