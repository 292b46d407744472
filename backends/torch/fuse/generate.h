// Writes the source of a kernel that computes the body of a torch.Fused node.
//
// The source is CUDA C++ without headers, for a run-time compiler. Given definitions of the few CUDA keywords in it
// (tests/backends/torch_fuse/host_cuda.h), it is also C++ for the CPU, so that its arithmetic is tested without a GPU.
//
// Every kernel takes one argument, `Pointers` (prelude.cc): the addresses of inputs, outputs and workspace, then the
// streams of random operators. A thread reads an element of all operands before it writes there, so that an output may
// have the address of an input of its type. Results do not depend on the order in which threads run.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

struct KernelLaunch {
  std::string function;
  int64_t blocks = 1;
  int threads = 1;

  bool operator==(const KernelLaunch&) const = default;
};

struct GeneratedKernel {
  std::string source;
  std::vector<KernelLaunch> launches;  // in order, on one stream
  int64_t workspace = 0;               // bytes
  std::vector<int64_t> streams;        // attribute `stream` of each Dropout of the body
};

inline constexpr size_t kMostPointers = 32;  // inputs, outputs, workspace and streams of one kernel

// Generates the kernel of a body. Every launch must pass addresses that are multiples of `alignment` bytes. Fails if
// one kernel cannot compute the body.
absl::StatusOr<GeneratedKernel> GenerateKernel(const Graph& body, size_t alignment);

// An entry of the table in device memory that a batched kernel reads. One launch computes many bodies that differ only
// in their number of elements, such as the updates of all weights, if their kernels have the same source. The argument
// of the kernel holds the address and length of the table. KernelLaunch::blocks counts the blocks of one body; a batch
// launches the sum over its bodies.
struct BatchEntry {
  std::array<void*, kMostPointers> pointers;
  int64_t elements, first_block;
};
struct BatchKernel {
  GeneratedKernel kernel;
  int64_t elements = 0;
};

// Generates a batched kernel. Fails if its source would depend on extents: the body has broadcast operands other than
// scalars, reductions or random operators.
absl::StatusOr<BatchKernel> GenerateBatchKernel(const Graph& body, size_t alignment);

}  // namespace onnxtrain::aten
