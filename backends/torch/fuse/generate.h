// Writes the source of a kernel that computes the body of a torch.Fused node.
//
// The source is CUDA C++ without headers, for a run-time compiler. It uses little enough of CUDA that it is C++ for the
// CPU, too, behind definitions of CUDA's words (tests/backends/torch_fuse/host_cuda.h): so its arithmetic is tested
// without a GPU.
//
// Every kernel takes one argument, `Pointers` (prelude.h): the addresses of inputs, outputs and workspace, and then the
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
  std::vector<int64_t> streams;        // of the random operators of the body
};

inline constexpr size_t kMostPointers = 32;  // of one kernel: inputs, outputs, workspace, streams

// `alignment`: bytes of which all addresses are multiples. Fails where one kernel cannot compute the body.
absl::StatusOr<GeneratedKernel> GenerateKernel(const Graph& body, size_t alignment);

// A kernel for many bodies that differ in their number of elements alone, as the updates of all weights do: one launch
// for all whose kernels have the same source. Its argument has the address of a table of BatchEntry and their number;
// the blocks of the launch are those of one body, and a batch has as many as its bodies together.
struct BatchEntry {
  std::array<void*, kMostPointers> pointers;
  int64_t elements, first_block;
};
struct BatchKernel {
  GeneratedKernel kernel;
  int64_t elements = 0;
};

// Fails where the source would depend on extents: broadcast operands other than scalars, rows, random numbers.
absl::StatusOr<BatchKernel> GenerateBatchKernel(const Graph& body, size_t alignment);

}  // namespace onnxtrain::aten
