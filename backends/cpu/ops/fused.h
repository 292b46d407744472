// The program of a cpu.Fused node: elementwise instructions over slots. Slots 0, 1, … are the inputs of the node, the
// next ones the results of the instructions in order. Attributes:
//   ops       "Mul;Add;Where": names of table entries (kernels/elementwise.h)
//   operands  three slots per instruction, −1 where there are fewer
//   params    two numbers per instruction
//   results   the slots of the outputs: results of instructions
//   sums      four numbers per further output: a FusedReduction
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

struct Instruction {
  std::string entry;
  std::array<int, 3> operands = {-1, -1, -1};
  std::array<float, 2> params{};
};

// A sum in double precision over the float32 result of an instruction, as a matrix of so many columns.
struct FusedReduction {
  int slot = -1;
  int64_t columns = 1;
  bool by_column = false;  // sums each column → [columns]; else each row → [rows]
  bool mean = false;       // divides by the number of terms

  bool IsCompatibleWith(const FusedReduction& other) const { return columns == other.columns; }
};

struct FusedProgram {
  std::vector<Instruction> code;
  std::vector<int> results;
  std::vector<FusedReduction> sums;  // with equal numbers of columns
};

// Bounds that let the kernel keep its state on the stack.
inline constexpr int kMaxInstructions = 24;
inline constexpr int kMaxFusedInputs = 14;
inline constexpr int kMaxFusedReductions = 4;

Attrs ToAttrs(const FusedProgram& program);
// Fails where a slot is out of range or an entry is unknown.
absl::StatusOr<FusedProgram> FromAttrs(const Attrs& attrs, size_t inputs);

// Can the entry take operands of these types and give a result of that one?
bool TakesTypes(std::string_view entry, std::span<const DType> operands, DType result);

// Returns the element type of every slot. Fails where an entry cannot take its operands.
absl::StatusOr<std::vector<DType>> SlotTypes(const FusedProgram& program, const std::vector<DType>& inputs);

}  // namespace onnxtrain::cpu
