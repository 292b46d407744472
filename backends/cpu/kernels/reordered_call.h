// A oneDNN primitive with reorders of its operands.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "backends/cpu/runtime/dnnl_call.h"

namespace onnxtrain::cpu {

// Runs a primitive that may require other layouts than the graph's: reorders inputs before it and the output after it.
// One thread at a time; copies are independent.
class ReorderedCall {
 public:
  // The last operand is the output. `arg` is DNNL_ARG_…
  struct Operand {
    int arg;
    dnnl::memory::desc plain, wanted;
  };

  ReorderedCall(const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                const std::vector<Operand>& operands);

  size_t workspace() const { return workspace_; }

  // Two inputs, an optional third, and the output.
  void Run(const void* a, const void* b, const void* bias, void* out, void* workspace) const;

 private:
  struct Side {
    std::optional<DnnlCall> reorder;  // none where the layouts agree
    size_t offset = 0;                // of the reordered copy in the workspace
    size_t scratch = 0;
  };
  DnnlCall call_;
  std::vector<Side> sides_;
  size_t scratch_ = 0, workspace_ = 0;
};

}  // namespace onnxtrain::cpu
