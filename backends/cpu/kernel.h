// What a kernel is: prepared once per node at compile, then run from flat pointers.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "backends/kernel_table.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::cpu {

// What prepare sees. Nodes have passed their row's type rule and the table's type set.
struct KernelContext {
  const Graph& graph;
  const Node& node;

  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i] != kNoValue; }
  const Type& in(size_t i = 0) const { return graph.type(node.inputs[i]); }
  const Type& out(size_t i = 0) const { return graph.type(node.outputs[i]); }
  const Attrs& attrs() const { return node.attrs; }
};

// Where the node's tensors are, dense and row-major, resolved when the program is bound. Absent inputs are null.
struct Args {
  void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  void* workspace = nullptr;  // 64-byte aligned

  template <typename T = float>
  const T* in(size_t i = 0) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T = float>
  T* out(size_t i = 0) const {
    return static_cast<T*>(outputs[i]);
  }
};

// Must not allocate or fail, but oneDNN may throw; the program turns that into a Status.
using RunKernel = std::function<void(const Args&)>;

struct Kernel {
  RunKernel run;
  size_t workspace = 0;  // bytes
};

using Prepare = absl::StatusOr<Kernel> (*)(const KernelContext&);

// Bits by DType.
using TypeSet = uint32_t;
constexpr TypeSet Only(DType dtype) { return 1u << static_cast<int>(dtype); }
inline constexpr TypeSet kFloat = Only(DType::kFloat32);
inline constexpr TypeSet kDouble = Only(DType::kFloat64);
inline constexpr TypeSet kReals = kFloat | kDouble;
inline constexpr TypeSet kInts = Only(DType::kInt8) | Only(DType::kInt16) | Only(DType::kInt32) | Only(DType::kInt64) |
                                 Only(DType::kUInt8) | Only(DType::kUInt16) | Only(DType::kUInt32) |
                                 Only(DType::kUInt64);
inline constexpr TypeSet kBools = Only(DType::kBool);
inline constexpr TypeSet kAnyType = ~0u;

struct KernelRow {
  std::string_view op;
  Prepare prepare;
  TypeSet types = kFloat;  // what the inputs and outputs may be
  bool (*accepts)(const KernelContext&) = nullptr;  // further conditions; null: none
};

// The families, each defined in kernels/NAME.cc.
std::span<const KernelRow> ElementwiseKernels();
std::span<const KernelRow> DoubleKernels();  // elementwise over float64
std::span<const KernelRow> FusedKernels();
std::span<const KernelRow> IntegerKernels();
std::span<const KernelRow> CastKernels();
std::span<const KernelRow> ReduceKernels();
std::span<const KernelRow> MatmulKernels();
std::span<const KernelRow> PackKernels();  // weights for products
std::span<const KernelRow> ConvKernels();
std::span<const KernelRow> ConvPackKernels();  // weights for convolutions
std::span<const KernelRow> DoubleConvKernels();
std::span<const KernelRow> PoolKernels();
std::span<const KernelRow> LastPoolKernels();   // channels last
std::span<const KernelRow> ResampleKernels();
std::span<const KernelRow> SampleKernels();
std::span<const KernelRow> RoiKernels();
std::span<const KernelRow> DeterminantKernels();
std::span<const KernelRow> BatchNormKernels();
std::span<const KernelRow> LastBatchNormKernels();  // channels last
std::span<const KernelRow> LayerNormKernels();
std::span<const KernelRow> SoftmaxKernels();
std::span<const KernelRow> AttentionKernels();
std::span<const KernelRow> DoubleSoftmaxKernels();
std::span<const KernelRow> LossKernels();
std::span<const KernelRow> ShapeKernels();
std::span<const KernelRow> IndexKernels();
std::span<const KernelRow> ScatterKernels();
std::span<const KernelRow> TopKKernels();
std::span<const KernelRow> RandomKernels();

// The row that runs the node, or null. An operator may have several rows for different types.
const KernelRow* FindKernel(const Graph& graph, const Node& node);

}  // namespace onnxtrain::cpu
