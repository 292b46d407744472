// The program of a cpu.Fused node: elementwise operators over slots. Slots 0, 1, … are the node's inputs, the next ones
// the results of the instructions in order. As attributes:
//   ops       "Mul;Add;Where": names of table entries (kernels/elementwise.h)
//   operands  three slots per instruction, −1 where there are fewer
//   params    two numbers per instruction
//   results   which slots are the node's outputs: results of instructions
//   sums      four numbers for each output behind those: a ChainSum
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/attrs.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

struct Instruction {
  std::string entry;
  std::array<int, 3> operands = {-1, -1, -1};
  std::array<float, 2> params{};
};

// A sum, in double precision, over what an instruction computes. Its float32 values are taken as a matrix of so many columns.
struct ChainSum {
  int slot = -1;
  int64_t columns = 1;
  bool by_column = false;  // of every column → [columns]; else of every row → [rows]
  bool mean = false;       // divided by the number of its terms

  bool FitsWith(const ChainSum& other) const { return columns == other.columns; }
};

struct FusedProgram {
  std::vector<Instruction> code;
  std::vector<int> results;
  std::vector<ChainSum> sums;  // all of one number of columns
};

// Bounds that let the kernel keep everything on the stack.
inline constexpr int kMaxInstructions = 24;
inline constexpr int kMaxFusedInputs = 14;
inline constexpr int kMaxSums = 4;

Attrs ToAttrs(const FusedProgram& program);
// Checks everything: slots in range, known entries.
absl::StatusOr<FusedProgram> FromAttrs(const Attrs& attrs, size_t inputs);

// Element type of every slot. Fails where an entry cannot take its operands.
absl::StatusOr<std::vector<DType>> SlotTypes(const FusedProgram& program, const std::vector<DType>& inputs);

OpRow FusedRow();

}  // namespace onnxtrain::cpu
