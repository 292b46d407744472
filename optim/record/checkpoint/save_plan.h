// Plans how a run saves checkpoints, and estimates the cost in memory and time.
#pragma once

#include <cstdint>
#include <string>

#include "optim/config/config.h"

namespace onnxtrain {

enum class SaveMethod : uint8_t {
  kNone,     // the run saves nothing
  kInPlace,  // writes the state itself; the next update waits until it is written
  kCopy,     // copies the state, for which the next update waits, and writes the copy in the background
};

struct SaveFacts {
  int64_t state_bytes = 0;  // bytes of the state that this process writes; 0: none
  bool on_host = true;      // the state is in host memory
};

struct SavePlan {
  SaveMethod method = SaveMethod::kNone;
  int64_t bytes = 0;             // additional host memory
  double pause_seconds = 0;      // estimated delay of the next update by a save
  bool between_updates = false;  // the run also saves before its end
};

// Chooses kCopy, which delays updates least, if the copy fits `room` bytes of memory. The last save of a run needs no
// copy, since no update follows.
SavePlan PlanSave(const TrainConfig& config, const SaveFacts& facts, int64_t room);

// Returns "copies 1.2 GiB, …"; "" for SaveMethod::kNone.
std::string DescribeSave(const SavePlan& plan);

}  // namespace onnxtrain
