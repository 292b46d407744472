// Runs a node on the backend `cpu` because the plugin has no kernel for it.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"

namespace onnxtrain {

// Returns true if `host` can run the node.
bool HostRuns(const Backend& host, const Graph& graph, const Node& node);

// A program of one node over host memory. It contains the constant operands of the node.
class HostNode {
 public:
  // Compiles the node. `wanted` is true for the outputs that are read. `host` must outlive the result.
  static absl::StatusOr<std::unique_ptr<HostNode>> Make(Backend& host, const Graph& graph, const Node& node,
                                                        const std::vector<bool>& wanted);

  // Bytes of host memory that a run needs in addition to its operands.
  size_t workspace() const { return workspace_; }
  // Runs the node. `inputs` and `outputs` are its operands, 64-byte aligned; an output may alias an input. Rebinds the
  // program, which allocates, if an output or the workspace has moved since the last run.
  absl::Status Run(void* const* inputs, void* const* outputs, void* workspace);

 private:
  struct Operand {
    size_t index;  // among the inputs or outputs of the node
    size_t bytes;
    size_t staged = 0;  // outputs: offset in the workspace
    void* bound = nullptr;
  };

  absl::Status Bind(void* const* inputs, void* const* outputs, std::byte* workspace);
  absl::Status MoveInputs(void* const* inputs);

  std::unique_ptr<Program> program_;
  std::vector<Operand> inputs_, outputs_;  // in the order of the program
  // True if outputs are computed in the workspace and then copied, because several kernels run and an output may alias
  // an input.
  bool stages_ = false;
  size_t workspace_ = 0;
  void* bound_workspace_ = nullptr;
  bool bound_ = false;
};

}  // namespace onnxtrain
