// Unrolls recurrent layers: the decompositions of the rows, and the variants of ONNX's LSTM, GRU and RNN that the rows
// do not support.
#pragma once

#include <functional>
#include <vector>

#include "frontend/ops/builder.h"

namespace onnxtrain {

using Activation = std::function<Val(Val)>;

// One direction of a layer with S steps, B samples, H units and G gates (see ops/README.md).
struct Recurrence {
  Val x;        // [S,B,G·H]: the projected inputs plus all biases except `b`
  Val r;        // [G·H,H]
  Val b;        // [G·H], added to h·rᵀ, for GRU with linear_before_reset; otherwise absent
  Val h0, c0;   // [B,H]; c0 only for LSTM
  Val lengths;  // i64[B] or absent: later steps do not change the state
  bool reverse = false;
  // The rows do not support the following variants.
  std::vector<Activation> activations;  // f, g, h in ONNX's notation
  double clip = 0;                      // limit for the sums of the gates, as in ONNX Runtime; 0: none
  Val peephole;                         // LSTM: [3·H], for the gates i, o, f
  bool input_forget = false;            // LSTM: f = 1 − i
  bool linear_before_reset = true;      // GRU
};

struct Unrolled {
  Val h, c;   // [S,B,H]: the state after the step at each position, also in reverse
  Val gates;  // [S,B,4·H] for LSTM (i, o, f, g) and GRU (z, r, n, q), as the rows return them
};

Unrolled UnrollLstm(const Recurrence& layer);
Unrolled UnrollGru(const Recurrence& layer);
Unrolled UnrollRnn(const Recurrence& layer);

// Returns the state before each step, [S,B,H], given the states h [S,B,H] and h0 [B,H].
Val PreviousStates(Val h, Val h0, bool reverse);
// [B,…] ↔ [1,B,…]
Val SqueezeStep(Val x);
Val UnsqueezeStep(Val x);
Val SelectStep(Val x, int64_t t);  // x[t]
// Returns bool[B,1], true where step t is within the length. Invalid without lengths.
Val StepMask(Val lengths, int64_t t);

}  // namespace onnxtrain
