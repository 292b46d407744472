// A node that runs on the backend `cpu` in place of a library that has no kernel for it.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

// Can `host` run the node?
bool HostRuns(const Backend& host, const Graph& graph, const Node& node);

// The node as a program of its own over memory of the host. Its constant operands are part of it.
class HostNode {
 public:
  // `wanted`: which outputs anyone reads. `host` must outlive it.
  static absl::StatusOr<std::unique_ptr<HostNode>> Make(Backend& host, const Graph& graph, const Node& node,
                                                        const std::vector<bool>& wanted);

  // Host memory that a run needs beside its operands, bytes.
  size_t workspace() const { return workspace_; }
  // Runs over addresses by input and output of the node, 64-byte aligned. An output may lie where an input lies. Binds
  // again, with allocations, where an output or the workspace has moved since the last run.
  absl::Status Run(void* const* inputs, void* const* outputs, void* workspace);

 private:
  struct Operand {
    size_t index;  // of the node's inputs or outputs
    size_t bytes;
    size_t staged = 0;  // outputs: where in the workspace it is computed
    void* bound = nullptr;
  };

  absl::Status Bind(void* const* inputs, void* const* outputs, std::byte* workspace);
  absl::Status MoveInputs(void* const* inputs);

  std::unique_ptr<Program> program_;
  std::vector<Operand> inputs_, outputs_;  // in the order of the program's
  bool stages_ = false;  // outputs are computed apart and copied: several kernels, of which the first may write them
  size_t workspace_ = 0;
  void* bound_workspace_ = nullptr;
  bool bound_ = false;
};

}  // namespace onnxtrain
