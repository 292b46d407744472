// An operator is one row: everything about it but its kernels.
//
// The canonical operators are listed with their exact meaning in README.md. Adding one touches one row here, one kernel
// per backend (none where the decomposition serves) and one case in tests/ops/cases.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// What a type rule sees. Arity and attribute kinds have been checked; absent optional inputs are null.
struct TypeContext {
  std::string_view op;
  std::span<const Type* const> inputs;
  const Attrs& attrs;

  const Type& in(size_t i) const { return *inputs[i]; }
  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
};
// Output types, or what is wrong (without the node's tag, which the caller prefixes). Must be total: any input types and
// any attribute values of the declared kinds give types or an error, never a crash.
using TypeRule = absl::StatusOr<std::vector<Type>> (*)(const TypeContext&);

// What a gradient formula sees. Its result has one Val per input; an invalid Val means that no gradient flows there.
struct GradContext {
  Builder& b;
  const Node& node;             // in b.graph(); copy what you need before appending nodes: the reference moves
  std::vector<Val> inputs;      // invalid where absent
  std::vector<Val> outputs;
  std::vector<Val> grads;       // of the outputs; invalid where no gradient arrives
  std::vector<bool> needs;      // per input: is its gradient wanted?

  Val x(size_t i) const { return i < inputs.size() ? inputs[i] : Val(); }
  Val y(size_t i = 0) const { return outputs[i]; }
  Val dy(size_t i = 0) const { return grads[i]; }
  bool need(size_t i) const { return i < needs.size() && needs[i]; }
};
using Gradient = std::vector<Val> (*)(const GradContext&);

// What a decomposition sees. Its result has one Val per output.
struct DecomposeContext {
  Builder& b;
  const Attrs& attrs;
  std::vector<Val> inputs;
  std::vector<Type> output_types;

  Val x(size_t i) const { return i < inputs.size() ? inputs[i] : Val(); }
};
using Decompose = std::vector<Val> (*)(const DecomposeContext&);

// Host evaluation, for constant folding and for proving patterns: slow, simple, allocates. Inputs are null where absent.
struct EvalContext {
  const Attrs& attrs;
  std::span<const HostTensor* const> inputs;
  std::span<const Type> output_types;
};
using Evaluate = std::vector<HostTensor> (*)(const EvalContext&);

enum class GradStatus : uint8_t {
  kFormula,            // `gradient`
  kZero,               // piecewise constant or integer: no gradient flows, and that is right
  kDecomposition,      // the gradient of `decompose`
  kNotDifferentiable,  // a gradient exists mathematically but is not offered (second derivatives of fused backward rows)
};

// Which precision the operator computes in under mixed precision.
enum class Precision : uint8_t {
  kLow,      // products: always in the low precision
  kFollow,   // in whatever precision its inputs have
  kFloat32,  // reductions, exponentials, losses: always float32
  kInside,   // computes in float32; what has the shape of its first input it may read and give in the low precision
};

// How willing rematerialization is to compute it twice.
enum class Recompute : uint8_t { kFree, kCheap, kExpensive, kNever };

struct AttrSpec {
  std::string_view name;
  // The kind and the default. For a required attribute the value only gives the kind.
  AttrValue value;
  bool required = false;
};

struct Arity {
  int min = 1, max = 1;
  static constexpr int kMany = 1 << 20;
};

struct OpRow {
  std::string_view name;
  Arity inputs;
  int outputs = 1;                   // number of outputs; kOutputsFromAttr: as many as the attribute "num_outputs" says
  std::vector<AttrSpec> attrs;
  TypeRule infer = nullptr;
  GradStatus grad_status = GradStatus::kNotDifferentiable;
  Gradient gradient = nullptr;
  Decompose decompose = nullptr;
  Evaluate evaluate = nullptr;
  Precision precision = Precision::kFollow;
  Recompute recompute = Recompute::kCheap;
  // FLOPs of one run; null means one per output element. Bytes are those of inputs and outputs.
  double (*flops)(std::span<const Type* const> inputs, std::span<const Type> outputs, const Attrs& attrs) = nullptr;
  bool elementwise = false;          // output element i depends on (broadcast) input elements i alone
  uint32_t overwrites = 0;           // a bit per input of output 0's type that kernels may write it over, as those of elementwise operators
  bool view = false;                 // the output has the bytes of input 0: Reshape
  bool derive = false;               // worth computing once per update where it depends on weights alone: Cast, Transpose
  bool batch_coupled = false;        // samples of a batch influence each other: BatchNorm statistics
};

inline constexpr int kOutputsFromAttr = -1;
inline constexpr uint32_t kAnyInput = ~0u;  // OpRow::overwrites

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

// The families. Each is defined in the .cc file of its name.
std::span<const OpRow> ElementwiseOps();
std::span<const OpRow> ReduceOps();
std::span<const OpRow> MatmulOps();
std::span<const OpRow> ConvOps();
std::span<const OpRow> PoolOps();
std::span<const OpRow> ResampleOps();
std::span<const OpRow> SampleOps();
std::span<const OpRow> DeterminantOps();
std::span<const OpRow> NormOps();
std::span<const OpRow> SoftmaxOps();
std::span<const OpRow> AttentionOps();
std::span<const OpRow> ShapeOps();
std::span<const OpRow> IndexOps();
std::span<const OpRow> ScatterOps();
std::span<const OpRow> TopKOps();
std::span<const OpRow> BitwiseOps();
std::span<const OpRow> RandomOps();
std::span<const OpRow> LossOps();
std::span<const OpRow> QuantizeOps();
std::span<const OpRow> RmsNormOps();

}  // namespace onnxtrain
