// Operators that plugins add at run time (frontend/plugin).
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// Computes a node. Receives the addresses of inputs and outputs, null for absent ones, and a workspace with an
// alignment of 64 bytes.
using RunHostKernel = std::function<absl::Status(void* const* inputs, void* const* outputs, void* workspace)>;

// A kernel in host memory, for one node.
struct HostKernel {
  RunHostKernel run;     // must not allocate; called by one thread at a time
  size_t workspace = 0;  // bytes
};

struct HostKernels {
  bool (*supports)(const Graph& graph, const Node& node) = nullptr;  // true if the kernel accepts the element types
  absl::StatusOr<HostKernel> (*prepare)(const Graph& graph, const Node& node) = nullptr;
};

// All functions are thread-safe. Adds an operator and its kernels. Neither may ever be destroyed.
void AddOp(const OpRow& row, const HostKernels& kernels);
// Returns the kernels of an added operator; null for the operators that backends have kernels for.
const HostKernels* FindHostKernels(std::string_view op);

// Adds the import of an ONNX operator of a custom domain. It must be new and may never be destroyed.
void AddOnnxOp(const OnnxOp& op);
// Returns the added import of that name, or null.
const OnnxOp* FindAddedOnnxOp(std::string_view domain, std::string_view op_type);

}  // namespace onnxtrain
