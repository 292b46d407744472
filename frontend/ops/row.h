// A row describes an operator: everything but its kernels.
//
// README.md defines the canonical operators. A new operator needs a row, a kernel per backend (none if it has a
// decomposition) and a case in tests/ops/cases; docs/internals/adding-an-operator.md shows a complete change.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

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
// Returns the output types, or an error without the node's tag, which the caller prefixes. Must be total: any input
// types and any attribute values of the declared kinds give types or an error, never a crash.
using TypeRule = absl::StatusOr<std::vector<Type>> (*)(const TypeContext&);

// The arguments of a gradient formula. It returns one Val per input; an invalid Val means no gradient.
struct GradContext {
  Builder& b;
  const Node& node;         // in b.graph(); appending nodes invalidates the reference
  std::vector<Val> inputs;  // invalid where absent
  std::vector<Val> outputs;
  std::vector<Val> grads;   // of the outputs; invalid where no gradient arrives
  std::vector<bool> needs;  // per input: is its gradient wanted?

  Val x(size_t i) const { return i < inputs.size() ? inputs[i] : Val(); }
  Val y(size_t i = 0) const { return outputs[i]; }
  Val dy(size_t i = 0) const { return grads[i]; }
  bool need(size_t i) const { return i < needs.size() && needs[i]; }
};
using Gradient = std::vector<Val> (*)(const GradContext&);

// The arguments of a decomposition. It returns one Val per output.
struct DecomposeContext {
  Builder& b;
  const Attrs& attrs;
  std::vector<Val> inputs;
  std::vector<Type> output_types;

  Val x(size_t i) const { return i < inputs.size() ? inputs[i] : Val(); }
};
using Decompose = std::vector<Val> (*)(const DecomposeContext&);

// The arguments of host evaluation, for constant folding and pattern proofs: slow and simple. Absent inputs are null.
struct EvalContext {
  const Attrs& attrs;
  std::span<const HostTensor* const> inputs;
  std::span<const Type> output_types;
};
using Evaluate = std::vector<HostTensor> (*)(const EvalContext&);

// Imports an ONNX node (import/onnx_import.h).
class ImportContext;
using ImportFn = absl::StatusOr<std::vector<Val>> (*)(ImportContext&);

// Writes a node as nodes of ONNX (export/onnx_export.h). Fails, without the node's tag, on attributes that ONNX lacks.
class OnnxWriter;
using EmitFn = absl::Status (*)(OnnxWriter&, const Node&);

// Returns what replaces the only output of a node, or an invalid Val (simplify/simplify.h).
struct SimplifyContext;
using SimplifyFn = Val (*)(const SimplifyContext&);

enum class GradStatus : uint8_t {
  kFormula,            // `gradient`
  kZero,               // piecewise constant or integer: no gradient flows, and that is right
  kDecomposition,      // the gradient of `decompose`
  kNotDifferentiable,  // a gradient exists mathematically but is not offered (second derivatives of fused backward
                       // rows)
};

// Which precision the operator computes in under mixed precision.
enum class Precision : uint8_t {
  kLow,        // products: always in the low precision
  kPropagate,  // in whatever precision its inputs have
  kFloat32,    // reductions, exponentials, losses: always float32
  kMixedIo,    // computes in float32; what has the shape of its first input it may read and give in the low precision
};

// The cost class of computing it twice, for rematerialization.
enum class Recompute : uint8_t { kFree, kCheap, kExpensive, kNever };

// How an attribute names axes of the operands that share a layout (LayoutOperands).
enum class AxisRole : uint8_t {
  kNone,
  kAxis,      // an axis
  kAxisList,  // axes, in the order of other lists
  kAxisSet,   // axes, ascending
  kPerAxis,   // one value per axis
  kPads,      // one value per axis for its begin, then for its end
};

struct AttrSpec {
  std::string_view name;
  // The kind and the default. For a required attribute the value only gives the kind.
  AttrValue value;
  bool required = false;
  AxisRole axes = AxisRole::kNone;
};

// Operands that have the same axes and so share one layout, as bits by input and by output (bit 31: that and all
// later ones). Operands of lower rank than the others are row-major, and so is what no bit names.
struct LayoutOperands {
  uint32_t inputs = 0, outputs = 0;
  uint32_t packed = 0;     // inputs that may be packed
  bool any_order = false;  // computes the same over permuted axes with permuted attributes: Concat, Pad, ReduceSum
};

// What a weight at an input is, for its initialization.
enum class WeightRole : uint8_t {
  kData,                 // no weight
  kMatrix,               // of a product: Kaiming or Xavier, by the activation that follows
  kConvKernel,           // [M, C/g, …]
  kConvTransposeKernel,  // the same, of the convolution that the operator transposes
  kRecurrentMatrix,      // Xavier
  kScale,                // 1, where it is a vector
  kBias,                 // 0, where it is a vector; a table otherwise
  kNormScale,            // 1
  kNormBias,             // 0
  kNormMean,             // 0
  kNormVariance,         // 1
  kSlope,                // of PRelu
  kTable,                // an embedding
};

// How weights are initialized at and before the operator (optim/step/weight_initializer.h).
struct InitTraits {
  std::vector<WeightRole> roles;  // by input; kData beyond the end, or, of a variadic operator, the last one
  // The operator is an activation. Returns the gain of Kaiming initialization before it, 0 for Xavier initialization,
  // less than 0 where these attributes make it no activation.
  double (*gain)(const Attrs&) = nullptr;
  bool transparent = false;  // may stand between a product and its activation
};

// A way in which exporters write an operator with primitives: passes/recognize proposes the operator, with `attrs`, for
// any region of elementwise operators that has one named `needs`, and proves the match.
struct WrittenForm {
  std::string_view needs;
  Attrs attrs;
};

// When all elements of the output are at least 0 (or NaN).
enum class NonNegative : uint8_t { kUnknown, kIfInputsAre, kAlways };

struct Arity {
  int min = 1, max = 1;
  static constexpr int kMany = 1 << 20;
};

struct OpRow {
  std::string_view name;
  Arity inputs;
  int outputs = 1;  // number of outputs; kOutputsFromAttr: as many as the attribute "num_outputs" says
  std::vector<AttrSpec> attrs;
  TypeRule infer = nullptr;
  GradStatus grad_status = GradStatus::kNotDifferentiable;
  Gradient gradient = nullptr;
  Decompose decompose = nullptr;
  Evaluate evaluate = nullptr;
  Precision precision = Precision::kPropagate;
  Recompute recompute = Recompute::kCheap;
  // FLOPs of one run; null means one per output element. Bytes are those of inputs and outputs.
  double (*flops)(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) = nullptr;
  // Output element i depends on (broadcast) input elements i alone.
  bool elementwise = false;
  LayoutOperands layout;  // elementwise operators: all operands, in any order
  // A bit per input of output 0's type that kernels may overwrite, as those of elementwise operators may.
  uint32_t overwrites = 0;
  bool view = false;            // the output has the bytes of input 0: Reshape
  bool derive = false;          // worth computing once per update where it depends on weights alone: Cast, Transpose
  bool batch_coupled = false;   // samples of a batch influence each other: BatchNorm statistics
  bool is_gradient = false;     // a backward operator: reads dy and what the forward pass saved
  bool commutative = false;     // exchanging the inputs changes no bit
  bool arithmetic = false;      // a function that normalizations are written with: Add, Sqrt, Exp …
  bool reduction = false;       // folds `axes`, and keeps them with extent 1 where `keepdims` is set
  bool moves_data = false;      // every output element is one of the input's, at most cast, at a place known at import
  bool copies = false;          // every output element is an element of input 0, at any place, or a fixed number: Pad
  bool collective = false;      // takes part in an exchange of ranks, with the token of the one before as input 1
  bool selects = false;         // every output element is an input element or 0: MaxPool, Relu
  bool guards_divisor = false;  // keeps a divisor from 0 where formulas need it: x + ε, max(x, ε)
  NonNegative non_negative = NonNegative::kUnknown;  // kIfInputsAre for all that moves data
  bool probabilities = false;                        // turns logits into probabilities or their logarithms
  InitTraits init;
  std::vector<WrittenForm> written_as;
  // Imports the ONNX operator of the same name and arity in the default domain; null where ONNX has none, or where an
  // import family lists it.
  ImportFn onnx = nullptr;
  EmitFn emit = nullptr;  // null: FindEmit
  SimplifyFn simplify = nullptr;
};

inline constexpr int kOutputsFromAttr = -1;
inline constexpr uint32_t kAnyInput = ~0u;     // OpRow::overwrites
inline constexpr uint32_t kAllOperands = ~0u;  // LayoutOperands

// The row of that name, or null. The table is the families below plus what backends registered.
const OpRow* FindOp(std::string_view name);
// All rows, in table order.
std::vector<const OpRow*> AllOps();
// Backends add rows of their own ("cpu.PackWeight") when they are loaded. Registering the same name again is ignored.
// The rows must live for ever. Thread-safe.
void RegisterOps(std::span<const OpRow> rows);

// Checks arity and attributes against the row, fills in attribute defaults, infers and checks the output types.
// Errors carry no node tag.
absl::StatusOr<std::vector<Type>> InferTypes(std::string_view op, std::span<const Type* const> inputs, Attrs& attrs);

// The families, each defined in the .cc file of its name. A line here declares and registers one.
#define ONNXTRAIN_OP_FAMILIES                                                                                     \
  ElementwiseOps(), ReduceOps(), MatmulOps(), ConvOps(), PoolOps(), ResampleOps(), SampleOps(), DeterminantOps(), \
      NormOps(), SoftmaxOps(), AttentionOps(), ShapeOps(), IndexOps(), ScatterOps(), TopKOps(), BitwiseOps(),     \
      RandomOps(), LossOps(), RecurrentOps(), QuantizeOps(), RmsNormOps(), CollectiveOps()
std::span<const OpRow> ONNXTRAIN_OP_FAMILIES;

}  // namespace onnxtrain
