// Defines the operators that only this backend has and that lowering inserts (README.md lists them), and functions that
// build and read them.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/cpu/runtime/kernel.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/row.h"

namespace onnxtrain::cpu {

using Types = std::vector<Type>;
using TypesOr = absl::StatusOr<Types>;

// Adds the rows of these operators to the table. Idempotent.
void RegisterCpuOps();

// Return the rows of one family of operators each.
std::vector<OpRow> AttentionRows();
std::vector<OpRow> FusedRows();
std::vector<OpRow> LayerNormRows();
std::vector<OpRow> LayoutRows();

// Returns the name without "cpu.": "MatMul" for "cpu.MatMul".
std::string_view BaseName(std::string_view op);
// Returns the row of an operator "cpu.X" with the traits of X and more optional inputs and attributes.
OpRow FormOf(std::string_view name, TypeRule infer, int more_inputs = 0, std::vector<AttrSpec> more_attrs = {});

// Returns true if products have factors of this element type.
bool IsMultiplied(DType dtype);

// Returns the bytes of x as a tensor of that type: x itself, a Reshape or a cpu.View.
Val Reinterpret(Val x, const Type& type);

// Convert between row-major [N,C,…] and channels last.
Val ToNhwc(Val x);
Val ToNchw(Val x);

// The index of the forward pass's softmax among the inputs of cpu.AttentionGrad.
constexpr size_t kSoftmaxInput = 8;

// The extents and strides of an operand of Attention (batch…, rows, columns).
struct StridedType {
  Shape shape, strides;
};

// Returns the inputs of cpu.Attention or cpu.AttentionGrad up to the mask (a scalar if absent), then the outputs that
// have heads. Where heads of keys serve several of queries, the heads are two axes, and operands of keys have the
// stride 0 along the last.
std::vector<StridedType> GetHeadOperands(const KernelContext& c);

// The program of a cpu.Fused node: elementwise instructions over slots. Slots 0, 1, … are the inputs of the node, the
// next ones the results of the instructions in order. Attributes:
//   ops       "Mul;Add;Where": names of table entries (kernels/elementwise.h)
//   operands  three slots per instruction, −1 where there are fewer
//   params    two numbers per instruction
//   results   the slots of the outputs: results of instructions
//   sums      four numbers per further output: a FusedReduction

// An instruction of such a program.
struct Instruction {
  std::string entry;
  std::array<int, 3> operands = {-1, -1, -1};
  std::array<float, 2> params{};

  bool operator==(const Instruction&) const = default;
};

// A sum in double precision over the float32 result of an instruction, viewed as a matrix of `columns` columns.
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

// cpu.RotateHalves exchanges the halves of rows along the last axis, of `size` elements, and negates the first or the
// second half of the result, as rotary embeddings do (Su et al., RoFormer, 2021). Within a chain, tiles are whole rows.
inline constexpr std::string_view kRotateHalves = "cpu.RotateHalves";
inline constexpr int64_t kMaxRotated = 512;

// Returns the size of the rows that a program rotates, or 0.
int64_t FindRotatedRows(const FusedProgram& program);

// Bounds that let the kernel keep its state on the stack.
inline constexpr int kMaxInstructions = 40;
inline constexpr int kMaxFusedInputs = 14;
inline constexpr int kMaxFusedReductions = 4;

// The program of a cpu.FusedCodes node, cpu.Fused whose inputs and results may be in the 8-bit dynamic code
// (frontend/ops/dynamic_code.h): such an input or result is two of the node, codes and scales. All others have the same
// number of elements, or, of inputs, one. Further attributes:
//   loads, stores   per input and per result of the program: a CodeKind
enum class CodeKind : int64_t { kNone, kUnsigned, kSigned };

Attrs ToAttrs(const FusedProgram& program);
// Returns an error if a slot is out of range or an entry is unknown.
absl::StatusOr<FusedProgram> FromAttrs(const Attrs& attrs, size_t inputs);

// Returns true if the entry accepts operands of these types and has a result of that type.
bool TakesTypes(std::string_view entry, std::span<const DType> operands, DType result);

// Returns the element type of every slot, or an error if an entry does not accept its operands.
absl::StatusOr<std::vector<DType>> SlotTypes(const FusedProgram& program, const std::vector<DType>& inputs);

// Returns the types of the inputs of the program of a cpu.FusedCodes node.
Types GetDecodedInputs(const Attrs& attrs, std::span<const Type* const> inputs);

// Layer normalization fused with its neighbors in a transformer: cpu.LayerNorm and cpu.LayerNormGrad. RMSNorm is the
// same without a mean and a bias: cpu.RmsNorm and cpu.RmsNormGrad.
//
// cpu.LayerNorm: scale, bias?, key?, terms… → `results`
//   h = Σ terms, y = LayerNorm(h). Term `dropped` (−1: none) goes through Dropout(key) {ratio, stream} first.
// cpu.LayerNormGrad: scale, rstd, mean, key?, h, terms…, more… → `results`
//   dh = LayerNormGrad(Σ terms, h, …) + Σ more (`more` of them); d = Dropout(dh, key) {ratio, stream}.
// Terms are f32 or bf16 and are added in order. Computes in float32 and rounds once.

// The results of cpu.LayerNorm. The attribute `results` lists those of a node, in this order.
enum class NormResult : int64_t { kSum, kF32, kBf16, kMean, kRstd };  // h; y in f32, in bf16; [rows…,1] each
// The results of cpu.LayerNormGrad. Columns: the f32 sum over all rows.
enum class NormGradResult : int64_t { kSum, kBf16, kColumns, kDropped, kDroppedBf16, kDroppedColumns, kScale, kBias };
inline constexpr size_t kNormResults = 5, kNormGradResults = 8;

// Indices of the inputs.
inline constexpr size_t kNormScale = 0, kNormBias = 1, kNormKey = 2, kNormTerms = 3;
inline constexpr size_t kNormGradScale = 0, kNormGradRstd = 1, kNormGradMean = 2, kNormGradKey = 3, kNormGradSum = 4,
                        kNormGradTerms = 5;

// Largest row that fits the stack of a kernel.
inline constexpr int64_t kMaxNormRow = 4096;

}  // namespace onnxtrain::cpu
