// Plans for graphs that are chains of blocks, such as layers of an encoder or residual blocks.
//
// The forward pass is cut where little crosses from what ran to what is to come. A dynamic program over stretches of blocks and the
// memory that is left for them decides for every block, each time that it runs, whether its inside is kept (whole, or as one of
// the given choices has it), or only what crosses its end, or nothing; a block may run several times. That is the program of
// Beaumont et al. ("Optimal checkpointing for heterogeneous chains", 1911.13214), with what runs again inside a block as its further
// choices. Peaks are estimates, from blocks that were simulated one at a time.
#pragma once

#include <vector>

#include "optim/recompute_model.h"

namespace onnxtrain {

// One choice for every amount of memory that gives another one, from the fastest to the smallest. `inside`: choices of what runs again,
// which are taken block by block. None where the graph has but one block.
std::vector<Again> ChainChoices(const RecomputeModel& model, const std::vector<Again>& inside);

// Bytes that cross from each candidate to later ones, by index of the candidate.
std::vector<int64_t> CrossingBytes(const RecomputeModel& model);

}  // namespace onnxtrain
