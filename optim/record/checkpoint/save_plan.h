// The cost of a save: from the configuration of a run to a part of its plan.
#pragma once

#include <cstdint>
#include <string>

#include "optim/config/config.h"

namespace onnxtrain {

enum class SaveMethod : uint8_t {
  kNone,     // the run saves nothing
  kInPlace,  // writes from the state itself, for which the next update waits
  kCopy,     // copies the state, for which the next update waits, and writes the copy while the run goes on
};

struct SaveFacts {
  int64_t state_bytes = 0;  // of the part of the state that this process writes; 0: none
  bool on_host = true;      // that part is in memory that the process reads
};

struct SavePlan {
  SaveMethod method = SaveMethod::kNone;
  int64_t bytes = 0;             // of host memory, beside the state
  double pause_seconds = 0;      // that an update waits for a save, estimated
  bool between_updates = false;  // also before the end of the run
};

// Plans the saves of a run that has `room` bytes of memory left for them. A copy keeps updates waiting for the shortest
// time: it is made where it fits. The last save of a run needs none, since nothing changes the state any more.
SavePlan PlanSave(const TrainConfig& config, const SaveFacts& facts, int64_t room);

// "copies 1.2 GiB, …"; "" for SaveMethod::kNone.
std::string DescribeSave(const SavePlan& plan);

}  // namespace onnxtrain
