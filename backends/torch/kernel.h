// A kernel has two phases: prepare, with the addresses of inputs and outputs, and the returned closure, which runs in
// every step. The closure holds tensor views and only calls ATen.
//
// Rules for kernels: no host access to tensor data in the closure (a device run must not wait); constants are uploaded
// in prepare. Outputs of elementwise rows may alias an input: such a kernel reads all inputs before it writes, or
// writes by one elementwise ATen call.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include "backends/collectives.h"
#include "backends/kernel_table.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

class KernelCompiler;

using Run = std::function<void()>;

struct Args {
  const Graph& graph;
  const Node& node;
  at::Device device;
  std::vector<at::Tensor> in;          // undefined if an optional input is absent
  std::vector<at::Tensor> out;         // undefined for unused outputs: see Out
  KernelCompiler* compiler = nullptr;  // compiler of generated kernels; null: none
  Collectives* ranks = nullptr;        // the group that a collective operator names
  uint32_t channels_last_outputs = 0;  // bit mask of [N,…,C] outputs that the kernel sees as [N,C,…]

  const Attrs& attrs() const { return node.attrs; }
  bool has(size_t i) const { return i < in.size() && in[i].defined(); }
  at::Tensor In(size_t i) const { return has(i) ? in[i] : at::Tensor(); }
  // Returns the output, or scratch of its type if it is unused.
  at::Tensor Out(size_t i) const;
  at::TensorOptions options(at::ScalarType dtype) const { return at::TensorOptions().dtype(dtype).device(device); }
};

// The element types that a kernel accepts for all inputs and outputs.
enum class Types : uint8_t {
  kFloat,   // f32, f64; on a GPU also f16, bf16
  kNumber,  // those and the integers that ATen computes with; also floats together with labels or indices
  kNative,  // those and bool
  kAny,     // every type: the kernel only moves elements or handles all types
  kRandom,  // input `key` is u32, everything else is as for kFloat
};

struct Kernel {
  Run (*prepare)(const Args&);
  Types types = Types::kFloat;
};

using Kernels = KernelTable<Kernel>;

// A kernel of a family.
struct NamedKernel {
  std::string_view op;
  Kernel kernel;
};

// The kernel families, each defined in kernels/. A line declares and registers one family.
#define ONNXTRAIN_TORCH_KERNEL_FAMILIES                                                                           \
  UnaryKernels(), CastKernels(), BinaryKernels(), ReduceKernels(), MatmulKernels(), ConvKernels(), PoolKernels(), \
      ResampleKernels(), SampleKernels(), DeterminantKernels(), NormKernels(), SoftmaxKernels(), ShapeKernels(),  \
      IndexKernels(), ScatterKernels(), TopKKernels(), BitwiseKernels(), RandomKernels(), LossKernels(),          \
      RecurrentKernels(), FusedKernels(), AttentionKernels(), CollectiveKernels(), ChannelsLastKernels()
std::span<const NamedKernel> ONNXTRAIN_TORCH_KERNEL_FAMILIES;

// Returns the kernels of all families.
const Kernels& AllKernels();

// Reshapes inputs with as many elements as output 0 to the output's rank (broadcasting allows leading ones), so that
// ATen treats aliased inputs and outputs as the same tensor instead of a partial overlap.
void AlignRanks(Args& args);

// Returns true if a kernel supports the node's element types on the device.
bool HasKernel(const Graph& graph, const Node& node, at::Device device);

// Look up and prepare the CPU kernels of plugin operators (frontend/ops/added_ops.h).
bool HasHostKernel(const Graph& graph, const Node& node, at::Device device);
Run PrepareHostKernel(const Args& args);

}  // namespace onnxtrain::aten
