// One primitive between tensors of other layouts than it wants.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backends/cpu/dnnl_call.h"

namespace onnxtrain::cpu {

// Runs a primitive whose arguments may want other layouts than the graph's: inputs are reordered before it, the output
// after it. Several threads may not run one at a time.
class ReorderedCall {
 public:
  // The last operand is the output. `arg` is DNNL_ARG_…
  struct Operand {
    int arg;
    dnnl::memory::desc plain, wanted;
  };

  ReorderedCall(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad, std::vector<Operand> operands);

  size_t workspace() const { return workspace_; }

  // Two inputs, an optional third, and the output.
  void Run(const void* a, const void* b, const void* bias, void* out, void* workspace) const;

 private:
  struct Side {
    std::shared_ptr<DnnlCall> reorder;  // null where the layouts agree
    size_t offset = 0;                  // of the reordered copy in the workspace
    size_t scratch = 0;
  };
  std::vector<Side> sides_;
  std::shared_ptr<DnnlCall> call_;
  size_t scratch_ = 0, workspace_ = 0;
};

}  // namespace onnxtrain::cpu
