// Peephole optimization of chains: computes several instructions in one pass over a tile, with the same rounding.
#pragma once

#include <functional>
#include <vector>

#include "backends/cpu/ops/ops.h"

namespace onnxtrain::cpu {

// One pass over a tile.
struct PeepholeStep {
  enum class Kind {
    kPlain,         // one instruction
    kSum,           // sign_a·s·a + sign_b·t·b
    kProduct,       // sign_a·s·a + sign_b·t·(b·c)
    kQuotient,      // sign_a·s·a + sign_b·t·(b/c)
    kRoot,          // √a·s + t
    kRootQuotient,  // √a/s + t
  };
  Kind kind = Kind::kPlain;
  Instruction instruction;     // kPlain
  int a = -1, b = -1, c = -1;  // slots that vary along the tile
  int s = -1, t = -1;          // constant slots; −1: the factor is 1
  float sign_a = 1, sign_b = 1;
  int to = -1;  // slot
};

// Returns the steps of a program. is_scalar(slot) returns true if the slot is constant along a tile.
std::vector<PeepholeStep> RunPeephole(const FusedProgram& program, int inputs,
                                      const std::function<bool(int)>& is_scalar);

// Returns the program for a known value of the input `condition`: folds the Wheres that read it and removes dead
// instructions. A result of the new program may be an input.
FusedProgram SpecializeCondition(const FusedProgram& program, int inputs, int condition, bool value);

// Returns an input of one element (`is_one`) that is the condition of a Where, or −1.
int FindConditionInput(const FusedProgram& program, int inputs, const std::function<bool(int)>& is_one);

}  // namespace onnxtrain::cpu
