// The kernel interface: kernels are prepared at compile time from a node's operator, attributes and types, and run with
// pointers.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>

#include "absl/status/statusor.h"
#include "backends/collectives.h"
#include "backends/kernel_table.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/layout.h"

namespace onnxtrain::cpu {

// The input of a kernel's prepare function. The node has passed its row's type rule and the type set of the kernel row.
// A kernel may depend on the operator, the attributes, the types and the constant operands of one element, and on
// nothing else: nodes with equal ones share it (KernelCache).
struct KernelContext {
  const Graph& graph;
  const Node& node;
  // Set for operators that compute in any order if their tensors are channels last: the kernel sees row-major tensors
  // of the same bytes.
  const PhysicalNode* physical = nullptr;

  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNoValue; }
  const Type& in(size_t i = 0) const { return physical ? physical->inputs[i] : graph.type(node.inputs[i]); }
  const Type& out(size_t i = 0) const { return physical ? physical->outputs[i] : graph.type(node.outputs[i]); }
  const Attrs& attrs() const { return physical ? physical->attrs : node.attrs; }
};

// Pointers to the node's tensors, resolved when the program is bound; null for absent inputs.
struct Args {
  void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* workspace = nullptr;     // 64-byte aligned
  Collectives* ranks = nullptr;  // the group of a collective operator; null for others

  template <typename T = float>
  const T* in(size_t i = 0) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T = float>
  T* out(size_t i = 0) const {
    return static_cast<T*>(outputs[i]);
  }
};

// Runs a kernel. It must not allocate. It may throw dnnl::error or KernelFailure, which the program converts to a
// Status. Captures mutable state by value, so that copies of a kernel are independent.
using RunKernel = std::function<void(const Args&)>;

struct Kernel {
  RunKernel run;
  size_t workspace = 0;  // bytes
};

using Prepare = absl::StatusOr<Kernel> (*)(const KernelContext&);

// A set of element types, with one bit per DType.
using TypeSet = uint32_t;
constexpr TypeSet Only(DType dtype) { return 1u << static_cast<int>(dtype); }
inline constexpr TypeSet kFloat = Only(DType::kFloat32);
inline constexpr TypeSet kDouble = Only(DType::kFloat64);
inline constexpr TypeSet kReals = kFloat | kDouble;
template <typename T>
inline constexpr TypeSet kTypeOf = std::is_same_v<T, double> ? kDouble : kFloat;
inline constexpr TypeSet kInts = Only(DType::kInt8) | Only(DType::kInt16) | Only(DType::kInt32) | Only(DType::kInt64) |
                                 Only(DType::kUInt8) | Only(DType::kUInt16) | Only(DType::kUInt32) |
                                 Only(DType::kUInt64);
inline constexpr TypeSet kBools = Only(DType::kBool);
inline constexpr TypeSet kAnyType = ~0u;

struct KernelRow {
  std::string_view op;
  Prepare prepare;
  TypeSet types = kFloat;                           // element types of inputs and outputs
  bool (*accepts)(const KernelContext&) = nullptr;  // further conditions; null: none
  // The layout of the operands that share one (frontend/ops/layout.h).
  Layout layout = Layout::kRowMajor;
  // Bit mask of the inputs that may be bf16, all of them together with output 0. Other operands have one of `types`.
  uint32_t bf16 = 0;
  // For kChannelsLast, returns true if a node gets that layout regardless of its neighbors. If null, a node gets it if
  // its neighbors have it.
  bool (*prefers)(const KernelContext&) = nullptr;
};

// Declares and registers the families of kernels, each defined in kernels/. If several rows accept a node, the first
// one runs it.
#define ONNXTRAIN_CPU_KERNEL_FAMILIES                                                                              \
  ElementwiseKernels(), FusedKernels(), IntegerKernels(), CastKernels(), ReduceKernels(), MatmulKernels(),         \
      PackKernels(), ConvKernels(), ConvPackKernels(), DoubleConvKernels(), PoolKernels(), PoolNhwcKernels(),      \
      ResampleKernels(), SampleKernels(), RoiKernels(), DeterminantKernels(), BatchNormNhwcKernels(),              \
      BatchNormKernels(), LayerNormKernels(), SoftmaxKernels(), AttentionKernels(), LossKernels(), ShapeKernels(), \
      IndexKernels(), ScatterKernels(), TopKKernels(), RandomKernels(), RecurrentKernels(), CollectiveKernels()
std::span<const KernelRow> ONNXTRAIN_CPU_KERNEL_FAMILIES;

// Returns the row that runs the node, or null. An operator may have several rows for different types and layouts.
const KernelRow* FindKernel(const Graph& graph, const Node& node);
// Returns an error if the node has no kernel.
absl::StatusOr<Kernel> PrepareKernel(const Graph& graph, const Node& node);

// Returns a bit mask of the inputs that may become bf16 together with output 0.
uint32_t FindBf16Inputs(const Graph& graph, const Node& node);
// Returns true if a kernel of the operator, in any layout or with an epilogue ("cpu.…"), supports bf16 besides float32.
bool SupportsBf16(std::string_view op);
// Returns the row for tensors stored channels last, or null.
const KernelRow* FindChannelsLastKernel(std::string_view op);

}  // namespace onnxtrain::cpu
