// Operators that libraries of other parties add while the program runs (frontend/plugin).
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// Addresses by input and output of the node, as Program binds them; null where absent. The workspace is 64-byte
// aligned.
using RunHostKernel = std::function<absl::Status(void* const* inputs, void* const* outputs, void* workspace)>;

// A kernel that works in the memory of the host.
struct HostKernel {
  RunHostKernel run;     // allocates nothing; one thread at a time
  size_t workspace = 0;  // bytes
};

struct HostKernels {
  bool (*supports)(const Graph& graph, const Node& node) = nullptr;  // its element types
  absl::StatusOr<HostKernel> (*prepare)(const Graph& graph, const Node& node) = nullptr;
};

// Adds an operator with its kernels, which both live for ever. Like the functions below, thread-safe.
void AddOp(const OpRow& row, const HostKernels& kernels);
// The kernels of an operator that was added; null for all others, which backends have kernels for.
const HostKernels* FindHostKernels(std::string_view op);

// Adds the import of an operator of another domain, which must be new and live for ever.
void AddOnnxOp(const OnnxOp& op);
// Null where none of that name was added.
const OnnxOp* FindAddedOnnxOp(std::string_view domain, std::string_view op_type);

}  // namespace onnxtrain
