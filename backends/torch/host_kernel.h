// Kernels that operators of other parties bring along (frontend/ops/added_ops.h), on the CPU.
#pragma once

#include "backends/torch/kernel.h"

namespace onnxtrain::aten {

bool HasHostKernel(const Graph& graph, const Node& node, at::Device device);
Run PrepareHostKernel(const Args& args);

}  // namespace onnxtrain::aten
