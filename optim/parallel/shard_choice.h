// `--shard`: names of ShardLevel, and the choice among them by memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "optim/config/config.h"
#include "optim/config/optimizer.h"
#include "optim/parallel/shard.h"
#include "optim/step/session_memory.h"

namespace onnxtrain {

// Returns the level that TrainConfig::shard names; kNone for "auto".
ShardLevel FindShardLevel(std::string_view name);
std::string_view ShardName(ShardLevel level);

// Whether a run on this device may divide gradients: not where they are summed or shown whole.
bool MayDivideGradients(const TrainConfig& config, std::string_view device);

// What a choice is made from.
struct ShardOptions {
  int ranks = 1;
  SessionMemory whole;               // of a rank, where nothing is divided
  int64_t available = 0;             // bytes
  bool may_divide = true;            // moments (CheckDivides)
  bool may_divide_gradients = true;  // where moments are divided
};

// Returns the first level with which a rank takes at most half of the memory, or else the last one that it can take.
ShardLevel ChooseShardLevel(const ShardOptions& options);

}  // namespace onnxtrain
