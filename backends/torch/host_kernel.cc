#include "backends/torch/host_kernel.h"

#include <utility>

#include <ATen/ops/empty.h>

#include "frontend/base/status.h"
#include "frontend/ops/added_ops.h"

namespace onnxtrain::aten {

bool HasHostKernel(const Graph& graph, const Node& node, at::Device device) {
  const HostKernels* kernels = device.is_cpu() ? FindHostKernels(node.op) : nullptr;
  return kernels != nullptr && kernels->supports(graph, node);
}

Run PrepareHostKernel(const Args& args) {
  auto kernel = FindHostKernels(args.node.op)->prepare(args.graph, args.node);
  TORCH_CHECK(kernel.ok(), ToStd(kernel.status().message()));
  std::vector<void*> inputs, outputs;
  for (size_t i = 0; i < args.in.size(); ++i) inputs.push_back(args.has(i) ? args.in[i].data_ptr() : nullptr);
  for (const at::Tensor& out : args.out) outputs.push_back(out.defined() ? out.data_ptr() : nullptr);
  const auto bytes = static_cast<int64_t>(kernel->workspace);
  return [=, run = std::move(kernel->run), workspace = at::empty({bytes}, args.options(at::kByte))]() {
    const absl::Status status = run(inputs.data(), outputs.data(), workspace.data_ptr());
    TORCH_CHECK(status.ok(), ToStd(status.message()));
  };
}

}  // namespace onnxtrain::aten
