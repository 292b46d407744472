// A node that only changes a layout: packing.
#pragma once

#include "backends/cpu/dnnl_call.h"
#include "backends/cpu/kernel.h"

namespace onnxtrain::cpu {

inline Kernel ReorderKernel(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  const Reorder reorder = MakeReorder(from, to);
  return {.run = [call = reorder.call](const Args& args) { call->Run({args.inputs[0], args.outputs[0], args.workspace}); },
          .workspace = reorder.scratch};
}

}  // namespace onnxtrain::cpu
