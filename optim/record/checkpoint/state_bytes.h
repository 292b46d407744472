// The state of a session as one block of bytes, for programs that run the loop themselves.
//
//   "ONXTRST1", CRC-64 of the rest (8 bytes), tensors in the format safetensors: those of Session::State, and counters.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "optim/step/session.h"

namespace onnxtrain {

absl::StatusOr<std::string> SaveSessionState(Session& session);

// Continues from the state of a session of the same model and options. Changes nothing where it fails. Returns the
// factor of the learning rate (Session::SetPlateau) of that state.
absl::StatusOr<double> LoadSessionState(std::string_view bytes, Session* session);

// Returns that factor as a session has it.
absl::StatusOr<double> ReadPlateau(Session& session);

}  // namespace onnxtrain
