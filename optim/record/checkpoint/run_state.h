// state.json of a checkpoint: everything that a run needs to continue, besides tensors.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "optim/config/config.h"
#include "optim/loop/trainer.h"
#include "optim/step/session.h"

namespace onnxtrain {

struct RunState {
  std::string version, cpu;  // of the program that wrote it, and of its machine
  LoopPosition position;
  SessionCounters session;
  bool finished = false;  // the run came to its end: epochs, max_steps or early stopping
  TrainConfig config;     // with every automatic choice resolved
  std::string model_sha256, data_fingerprint;
  double samples_per_second = 0;
};

// Returns indented JSON. Numbers that are not finite are null.
std::string ToJson(const RunState& state);
// The error says what is missing or has another type.
absl::StatusOr<RunState> ParseRunState(std::string_view json);

}  // namespace onnxtrain
