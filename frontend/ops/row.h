// A row of the operator table describes everything about an operator except its kernels.
//
// README.md defines the canonical operators. A new operator needs a row, a kernel per backend (none if it has a
// decomposition) and a case in tests/ops/cases; docs/internals/adding-an-operator.md shows a complete change.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// The arguments of a type rule. Arity and attribute kinds have been checked; absent optional inputs are null.
struct TypeContext {
  std::string_view op;
  std::span<const Type* const> inputs;
  const Attrs& attrs;

  const Type& in(size_t i) const { return *inputs[i]; }
  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
};
// Returns the output types, or an error, to which the caller adds the node's tag. Must be total: for any input types
// and any attribute values of the declared kinds, returns types or an error and never crashes.
using TypeRule = absl::StatusOr<std::vector<Type>> (*)(const TypeContext&);

// The arguments of a gradient formula, which returns one Val per input; an invalid Val means no gradient.
struct GradContext {
  Builder& b;
  const Node& node;         // in b.graph(); appending nodes invalidates the reference
  std::vector<Val> inputs;  // invalid where absent
  std::vector<Val> outputs;
  std::vector<Val> grads;   // gradients of the outputs; invalid if an output has none
  std::vector<bool> needs;  // by input: its gradient is requested

  Val x(size_t i) const { return i < inputs.size() ? inputs[i] : Val(); }
  Val y(size_t i = 0) const { return outputs[i]; }
  Val dy(size_t i = 0) const { return grads[i]; }
  bool need(size_t i) const { return i < needs.size() && needs[i]; }
};
using Gradient = std::vector<Val> (*)(const GradContext&);

// The arguments of a decomposition, which returns one Val per output.
struct DecomposeContext {
  Builder& b;
  const Attrs& attrs;
  std::vector<Val> inputs;
  std::vector<Type> output_types;

  Val x(size_t i) const { return i < inputs.size() ? inputs[i] : Val(); }
};
using Decompose = std::vector<Val> (*)(const DecomposeContext&);

// The arguments of host evaluation, which serves constant folding and pattern proofs and is slow and simple. Absent
// inputs are null.
struct EvalContext {
  const Attrs& attrs;
  std::span<const HostTensor* const> inputs;
  std::span<const Type> output_types;
};
using Evaluate = std::vector<HostTensor> (*)(const EvalContext&);

// Imports an ONNX node (import/onnx_import.h).
class ImportContext;
using ImportFn = absl::StatusOr<std::vector<Val>> (*)(ImportContext&);

// Writes a node as ONNX nodes (export/onnx_export.h). Fails, without the node's tag, if ONNX cannot express an
// attribute.
class OnnxWriter;
using EmitFn = absl::Status (*)(OnnxWriter&, const Node&);

// Returns a replacement for the only output of a node, or an invalid Val to keep it (simplify/simplify.h).
struct SimplifyContext;
using SimplifyFn = Val (*)(const SimplifyContext&);

enum class GradStatus : uint8_t {
  kFormula,            // computed by `gradient`
  kZero,               // mathematically zero: piecewise constant or integer
  kDecomposition,      // computed by differentiating the result of `decompose`
  kNotDifferentiable,  // refused, with NoGradientReason: second derivatives of fused backward rows
};

// The precision class of an operator under mixed precision.
enum class Precision : uint8_t {
  kLow,        // always in the low precision: products
  kPropagate,  // in the precision of its inputs
  kFloat32,    // always in float32: reductions, exponentials, losses
  kMixedIo,    // computes in float32; tensors with the shape of input 0 may be in the low precision
};

// The cost of computing an output again, for rematerialization.
enum class Recompute : uint8_t { kFree, kCheap, kExpensive, kNever };

// How an attribute refers to axes of the operands that share a layout (LayoutOperands).
enum class AxisRole : uint8_t {
  kNone,
  kAxis,      // one axis
  kAxisList,  // axes in an order that other lists follow
  kAxisSet,   // axes in ascending order
  kPerAxis,   // one value per axis
  kPads,      // one value per axis for the begins, then one per axis for the ends
};

struct AttrSpec {
  std::string_view name;
  // The kind and the default. The value of a required attribute only determines its kind.
  AttrValue value;
  bool required = false;
  AxisRole axes = AxisRole::kNone;
};

// The operands that have the same axes and therefore share one layout, as bit masks of inputs and outputs (bit 31
// stands for operands 31 and later). Other operands, and those of lower rank than the others, are row-major.
struct LayoutOperands {
  uint32_t inputs = 0, outputs = 0;
  uint32_t packed = 0;     // inputs that may be packed
  bool any_order = false;  // permuting the axes and the attributes permutes the result: Concat, Pad, ReduceSum
};

// The role of a weight at an input, which determines its initialization.
enum class WeightRole : uint8_t {
  kData,                 // not a weight
  kMatrix,               // matrix of a product: Kaiming or Xavier, by the activation that follows
  kConvKernel,           // [M, C/g, …]
  kConvTransposeKernel,  // kernel of the convolution whose transpose the operator computes
  kRecurrentMatrix,      // Xavier
  kScale,                // 1 if it is a vector
  kBias,                 // 0 if it is a vector; otherwise as kTable
  kNormScale,            // 1
  kNormBias,             // 0
  kNormMean,             // 0
  kNormVariance,         // 1
  kSlope,                // slope of PRelu
  kTable,                // embedding table
};

// Traits for the initialization of weights at and before the operator (optim/step/weight_initializer.h).
struct InitTraits {
  std::vector<WeightRole> roles;  // by input; further inputs have kData or, for variadic operators, the last role
  // Set for activations. Returns the gain of Kaiming initialization before the activation, 0 for Xavier initialization,
  // or a negative number if the operator is not an activation with these attributes.
  double (*gain)(const Attrs&) = nullptr;
  bool transparent = false;  // may occur between a product and its activation
};

// A form in which exporters write an operator with primitives: passes/recognize proposes the operator with `attrs` for
// every region of elementwise operators that contains a `needs`, and proves the match.
struct WrittenForm {
  std::string_view needs;
  Attrs attrs;
};

// When all elements of the output are ≥ 0 or NaN.
enum class NonNegative : uint8_t { kUnknown, kIfInputsAre, kAlways };

struct Arity {
  int min = 1, max = 1;
  static constexpr int kMany = 1 << 20;
};

struct OpRow {
  std::string_view name;
  Arity inputs;
  int outputs = 1;  // number of outputs; kOutputsFromAttr: the attribute "num_outputs"
  std::vector<AttrSpec> attrs;
  TypeRule infer = nullptr;
  GradStatus grad_status = GradStatus::kNotDifferentiable;
  Gradient gradient = nullptr;
  Decompose decompose = nullptr;
  Evaluate evaluate = nullptr;
  Precision precision = Precision::kPropagate;
  Recompute recompute = Recompute::kCheap;
  // Returns the FLOPs of one run. Null: one per output element.
  double (*flops)(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) = nullptr;
  // Output element i depends only on the (broadcast) input elements i.
  bool elementwise = false;
  LayoutOperands layout;  // elementwise operators: all operands, in any order
  // Bit i: kernels may overwrite input i, whose type is that of output 0. Always allowed for elementwise operators.
  uint32_t overwrites = 0;
  bool view = false;            // the output has the bytes of input 0: Reshape
  bool derive = false;          // worth hoisting if it depends only on weights: Cast, Transpose
  bool batch_coupled = false;   // samples of a batch influence each other: BatchNorm statistics
  bool is_gradient = false;     // a backward operator: reads dy and values that the forward pass saved
  bool commutative = false;     // exchanging the inputs does not change the result, bit for bit
  bool arithmetic = false;      // an operator of which exporters build normalizations: Add, Sqrt, Exp …
  bool reduction = false;       // reduces over `axes`, which keep extent 1 if `keepdims` is set
  bool moves_data = false;      // output elements are input elements, possibly cast, from positions known at import
  bool copies = false;          // output elements are elements of input 0, from any position, or a constant: Pad
  bool collective = false;      // communicates among ranks; input 1 is the token of the previous collective
  bool selects = false;         // every output element is an input element or 0: MaxPool, Relu
  bool guards_divisor = false;  // used in formulas to keep a divisor from being 0: x + ε, max(x, ε)
  NonNegative non_negative = NonNegative::kUnknown;  // kIfInputsAre is implied by moves_data
  bool probabilities = false;                        // turns logits into probabilities or their logarithms
  InitTraits init;
  std::vector<WrittenForm> written_as;
  // Imports the ONNX operator of the same name and arity in the default domain. Null if ONNX has none, or if an import
  // family lists it.
  ImportFn onnx = nullptr;
  EmitFn emit = nullptr;  // null: FindEmit
  SimplifyFn simplify = nullptr;
};

inline constexpr int kOutputsFromAttr = -1;
inline constexpr uint32_t kAnyInput = ~0u;     // OpRow::overwrites
inline constexpr uint32_t kAllOperands = ~0u;  // LayoutOperands

// Returns the row of that name, or null. The table has the families below and the rows that backends registered.
const OpRow* FindOp(std::string_view name);
// Returns all rows in table order.
std::vector<const OpRow*> AllOps();
// Adds rows of a backend, such as "cpu.PackWeight", when it is loaded. Ignores names that exist. The rows must never be
// destroyed. Thread-safe.
void RegisterOps(std::span<const OpRow> rows);

// Checks arity and attributes against the row, adds the defaults of attributes, and infers and checks the output types.
// Errors have no node tag.
absl::StatusOr<std::vector<Type>> InferTypes(std::string_view op, std::span<const Type* const> inputs, Attrs& attrs);

// Declares and registers the operator families. XOps() is defined in x.cc, or in the file of a larger family: matmul.cc
// (Determinant), index.cc (Scatter, TopK), elementwise_binary.cc (Bitwise), norm.cc (RmsNorm).
#define ONNXTRAIN_OP_FAMILIES                                                                                     \
  ElementwiseOps(), ReduceOps(), MatmulOps(), ConvOps(), PoolOps(), ResampleOps(), SampleOps(), DeterminantOps(), \
      NormOps(), SoftmaxOps(), AttentionOps(), ShapeOps(), IndexOps(), ScatterOps(), TopKOps(), BitwiseOps(),     \
      RandomOps(), LossOps(), RecurrentOps(), QuantizeOps(), RmsNormOps(), CollectiveOps()
std::span<const OpRow> ONNXTRAIN_OP_FAMILIES;

// An operator without a gradient, and the reason, for messages and docs/reference/operators.md.
struct NoGradient {
  std::string_view op, reason;
};

// Returns one entry for every row with status kNotDifferentiable, in table order.
std::span<const NoGradient> OperatorsWithoutGradient();
// Returns the reason, or "" for an operator without an entry.
std::string_view NoGradientReason(std::string_view op);

// Checks the structure of a graph (VerifyStructure), and each node against its row: arity, attributes and output types.
// The pass driver calls it after every pass.
absl::Status Verify(const Graph& graph);

}  // namespace onnxtrain
