// Building blocks of losses and metrics.
#pragma once

#include <optional>

#include "frontend/ops/builder.h"
#include "optim/config/options.h"
#include "optim/step/losses/loss_function.h"

namespace onnxtrain {

// The axis of the classes in a loss over class indices: 1, or the last (-1). By default the one that the labels leave
// out, which is ambiguous only without labels.
inline constexpr NumberOption kClassAxisOption = {"axis", kOpenOption, -1, 15};

// Scores [rows, classes] or [N, classes, …] and labels without the class axis.
struct ClassPair {
  Val scores, labels;
};
// Moves the class axis to 1. Labels are class indices of a shape that ClassAxis accepts.
ClassPair AlignClasses(Val scores, Val labels);

struct GatheredClass {
  Val score;    // score of each label's class, in the labels' shape; arbitrary where ignored
  Val ignored;  // bool, in the labels' shape
};
GatheredClass GatherClassScores(const ClassPair& pair, int64_t ignore_index);

// Counts labels that equal the argmax of the scores along `axis`: scalar.
Val CountCorrect(Val scores, Val labels, int64_t axis, DType dtype);
// Counts rows whose argmax equals that of the target distribution over the last axis.
Val CountCorrectSoft(Val scores, Val targets);
// The class 1 of two: logit > 0, or logit >= least.
Val ChooseBinary(Val logits, std::optional<double> least);
// Counts elements where the chosen class is that of target > 0.5.
Val CountCorrectBinary(const LossContext& c);

}  // namespace onnxtrain
