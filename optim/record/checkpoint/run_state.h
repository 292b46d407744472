// state.json of a checkpoint: everything that a run needs to continue, besides tensors. For programs that run the loop
// themselves, the state of a session is one block of bytes:
//
//   "ONXTRST1", CRC-64 of the rest (8 bytes), tensors in the format safetensors: those of Session::State, and counters.
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

absl::StatusOr<std::string> SaveSessionState(Session& session);

// Continues from the state of a session of the same model and options. Changes nothing where it fails. Returns the
// factor of the learning rate (Session::SetPlateau) of that state.
absl::StatusOr<double> LoadSessionState(std::string_view bytes, Session* session);

// Returns that factor as a session has it.
absl::StatusOr<double> ReadPlateau(Session& session);

}  // namespace onnxtrain
