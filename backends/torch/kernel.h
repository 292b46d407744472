// A kernel in two parts: prepare, once the places of its inputs and outputs are known, and the closure that it returns,
// which runs with every step. The closure holds ready views and does nothing but call ATen.
//
// Rules for kernels: no host access to tensor data in the closure (a device run must not wait); constants are uploaded in
// prepare. The outputs of rows marked elementwise may lie exactly over an input, so such a kernel reads all its inputs
// before it writes, or writes with one elementwise ATen call.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "backends/kernel_table.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

using Run = std::function<void()>;

struct Args {
  const Graph& graph;
  const Node& node;
  at::Device device;
  std::vector<at::Tensor> in;   // undefined where an optional input is absent
  std::vector<at::Tensor> out;  // undefined where nobody reads the output: see Out

  const Attrs& attrs() const { return node.attrs; }
  bool has(size_t i) const { return i < in.size() && in[i].defined(); }
  at::Tensor In(size_t i) const { return has(i) ? in[i] : at::Tensor(); }
  // The output's place, or scratch of its type where it has none.
  at::Tensor Out(size_t i) const;
  at::TensorOptions options(at::ScalarType dtype) const { return at::TensorOptions().dtype(dtype).device(device); }
};

// Which element types a kernel takes, for all inputs and outputs alike.
enum class Types : uint8_t {
  kFloat,    // f32, f64; on a GPU also f16, bf16
  kNumber,   // those and the integers that ATen computes with; floats beside labels or indices too
  kNative,   // those and bool
  kAny,      // every type: the kernel only moves elements, or knows them all
  kRandom,   // input `key` u32, everything else as kFloat
};

struct Kernel {
  Run (*prepare)(const Args&);
  Types types = Types::kFloat;
};

using Kernels = KernelTable<Kernel>;

// One name and kernel; families are arrays of these.
struct NamedKernel {
  std::string_view op;
  Kernel kernel;
};

std::span<const NamedKernel> UnaryKernels();
std::span<const NamedKernel> CastKernels();
std::span<const NamedKernel> BinaryKernels();
std::span<const NamedKernel> ReduceKernels();
std::span<const NamedKernel> MatmulKernels();
std::span<const NamedKernel> ConvKernels();
std::span<const NamedKernel> PoolKernels();
std::span<const NamedKernel> ResampleKernels();
std::span<const NamedKernel> SampleKernels();
std::span<const NamedKernel> DeterminantKernels();
std::span<const NamedKernel> NormKernels();
std::span<const NamedKernel> SoftmaxKernels();
std::span<const NamedKernel> ShapeKernels();
std::span<const NamedKernel> IndexKernels();
std::span<const NamedKernel> ScatterKernels();
std::span<const NamedKernel> TopKKernels();
std::span<const NamedKernel> BitwiseKernels();
std::span<const NamedKernel> RandomKernels();
std::span<const NamedKernel> LossKernels();

// All of them.
const Kernels& AllKernels();

// Gives each input that has as many elements as output 0 the output's rank (numpy broadcasting lets them differ by
// leading ones), so that ATen sees input and output in one place as the same tensor, not as a partial overlap.
void AlignRanks(Args& args);

// Is there a kernel for the node with these element types on the device?
bool HasKernel(const Graph& graph, const Node& node, at::Device device);

}  // namespace onnxtrain::aten
