// Unrolled recurrent layers: the decompositions of the rows in recurrent.cc, and the variants of ONNX's LSTM, GRU and
// RNN that the rows do not cover.
#pragma once

#include <functional>
#include <vector>

#include "frontend/ops/builder.h"

namespace onnxtrain {

using Activation = std::function<Val(Val)>;

// One direction of a layer. Names as in ops/README.md: S steps, B samples, H units, G gates.
struct Recurrence {
  Val x;        // [S,B,G·H]: the inputs' part of the gates, with all biases but `b`
  Val r;        // [G·H,H]
  Val b;        // GRU with linear_before_reset: [G·H], added to h·rᵀ; else absent
  Val h0, c0;   // [B,H]; c0 of an LSTM alone
  Val lengths;  // i64[B] or absent: steps from there on leave the state as it is
  bool reverse = false;
  // Variants that the rows do not have:
  std::vector<Activation> activations;  // f, g, h as ONNX numbers them
  double clip = 0;                      // of the gates' sums, as ONNX Runtime does it (not of the cell); 0: none
  Val peephole;                         // LSTM: [3·H], for the gates i, o, f
  bool input_forget = false;            // LSTM: f = 1 − i
  bool linear_before_reset = true;      // GRU
};

struct Unrolled {
  Val h, c;   // [S,B,H]: the state after each step, whichever way the steps go
  Val gates;  // [S,B,4·H] of LSTM (i, o, f, g) and GRU (z, r, n, q), as the rows give them
};

Unrolled UnrollLstm(const Recurrence& layer);
Unrolled UnrollGru(const Recurrence& layer);
Unrolled UnrollRnn(const Recurrence& layer);

// Returns the initial state of each step, [S,B,H], from h [S,B,H] and h0 [B,H].
Val PreviousStates(Val h, Val h0, bool reverse);
// [B,…] ↔ [1,B,…]
Val SqueezeStep(Val x);
Val UnsqueezeStep(Val x);
Val SelectStep(Val x, int64_t t);  // x[t]
// Returns bool[B,1]: whether step t is within the length. Invalid without lengths.
Val StepMask(Val lengths, int64_t t);

}  // namespace onnxtrain
