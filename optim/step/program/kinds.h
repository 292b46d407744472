// The programs of a session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "backends/backend.h"

namespace onnxtrain {

enum class ProgramKind : uint8_t {
  kMicroFirst,
  kMicroNext,
  kMicroOutputsFirst,
  kMicroOutputsNext,
  kMicroInputsFirst,
  kMicroInputsNext,
  kStep,
  kFiniteCheck,
  kTrainingLoss,
  kEval,
  kPredict
};

inline constexpr const char* kProgramNames[] = {"micro_first",
                                                "micro_next",
                                                "micro_outputs_first",
                                                "micro_outputs_next",
                                                "micro_inputs_first",
                                                "micro_inputs_next",
                                                "step",
                                                "finite_check",
                                                "training_loss",
                                                "eval",
                                                "predict"};

static_assert(std::size(kProgramNames) == static_cast<size_t>(ProgramKind::kPredict) + 1);

inline bool IsMicro(ProgramKind kind) { return kind <= ProgramKind::kMicroInputsNext; }
inline bool IsTraining(ProgramKind kind) { return kind <= ProgramKind::kTrainingLoss; }
inline bool IsFirst(ProgramKind kind) {
  return kind == ProgramKind::kMicroFirst || kind == ProgramKind::kMicroOutputsFirst ||
         kind == ProgramKind::kMicroInputsFirst;
}
inline bool HasInputGradients(ProgramKind kind) {
  return kind == ProgramKind::kMicroInputsFirst || kind == ProgramKind::kMicroInputsNext;
}
inline bool HasOutputs(ProgramKind kind) {
  return kind == ProgramKind::kMicroOutputsFirst || kind == ProgramKind::kMicroOutputsNext || HasInputGradients(kind);
}
// What is pending is overwritten by the next update; a step changes weights from some node on.
inline Interruption FindInterruption(ProgramKind kind) {
  return kind == ProgramKind::kStep ? Interruption::kBeforeUpdate : Interruption::kAnywhere;
}
// Returns the kind for the micro-batch of this number, of the pair that begins with `first`.
inline ProgramKind MicroKind(ProgramKind first, int64_t micro) {
  return micro == 0 ? first : static_cast<ProgramKind>(static_cast<uint8_t>(first) + 1);
}

}  // namespace onnxtrain
