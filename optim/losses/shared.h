// What losses share.
#pragma once

#include "frontend/ops/builder.h"

namespace onnxtrain {

// Scores as [rows, classes] or [N, classes, …], and labels to match.
struct ClassPair {
  Val scores, labels;
};
// Labels are indices of a shape that ClassAxis knows.
ClassPair Arrange(Val scores, Val labels);

struct PickedClass {
  Val score;    // of each label's class, of the labels' shape; of any class where ignored
  Val ignored;  // bool
};
PickedClass Pick(const ClassPair& pair, int64_t ignore_index);

// How many labels are where the highest score is: scalar.
Val Hits(Val scores, Val labels, int64_t axis, DType dtype);
// The same for labels that are distributions over the last axis.
Val DistributionHits(Val scores, Val targets);
// The same for coins: a logit above 0 against a target above 0.5.
Val CoinHits(Val logits, Val targets);

}  // namespace onnxtrain
