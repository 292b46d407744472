// Chains with fewer passes over their tiles: several instructions as one, with the same roundings.
#pragma once

#include <functional>
#include <vector>

#include "backends/cpu/fused.h"

namespace onnxtrain::cpu {

// One pass over a tile.
struct ChainStep {
  enum class Kind {
    kPlain,     // one instruction
    kSum,       // sign_a·s·a + sign_b·t·b
    kProduct,   // sign_a·s·a + sign_b·t·(b·c)
    kQuotient,  // sign_a·s·a + sign_b·t·(b/c)
    kRoot,      // √a·s + t
    kRootOver,  // √a/s + t
  };
  Kind kind = Kind::kPlain;
  Instruction instruction;           // kPlain
  int a = -1, b = -1, c = -1;        // slots that change along the tile
  int s = -1, t = -1;                // slots that do not; −1: the factor is 1
  float sign_a = 1, sign_b = 1;
  int to = -1;                       // slot
};

// `is_scalar`: does the slot keep its value along a tile?
std::vector<ChainStep> Condense(const FusedProgram& program, int inputs, const std::function<bool(int)>& is_scalar);

// The program where the input `condition` is known: every Where that it decides is gone, and what only they read. A result may
// then be an input.
FusedProgram Decided(const FusedProgram& program, int inputs, int condition, bool value);

// An input of one element (`is_one`) that decides a Where; −1: none.
int DecidingInput(const FusedProgram& program, int inputs, const std::function<bool(int)>& is_one);

}  // namespace onnxtrain::cpu
