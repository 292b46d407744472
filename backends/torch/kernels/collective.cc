// Collective operators, on the group of ranks that the program is bound to. Without one (scratch is measured), nothing
// is exchanged.
#include <ATen/ops/empty.h>

#include "backends/collective_call.h"
#include "backends/kernel_failure.h"
#include "backends/torch/kernel.h"
#include "backends/torch/tensor.h"
#include "frontend/ops/collective.h"

namespace onnxtrain::aten {
namespace {

// Values of a device are copied to the host and back; those in half precision are summed in float32.
Run Exchange(const Args& a) {
  Type in = a.graph.type(a.node.inputs[0]), out = a.graph.type(a.node.outputs[0]);
  const bool sums = a.node.op == "AllReduce" || a.node.op == "ReduceScatter";
  if (sums && IsFloat(in.dtype) && DTypeSize(in.dtype) == 2) in.dtype = out.dtype = DType::kFloat32;
  const CollectiveCall call(a.node, in, out);
  if (a.ranks == nullptr && a.attrs().Int("ranks") > 1) return {};
  const at::TensorOptions host = at::TensorOptions().device(at::kCPU);
  const bool on_host = a.device.is_cpu();
  const at::Tensor x = a.in[0], y = a.Out(0),
                   workspace = at::empty({static_cast<int64_t>(call.workspace())}, host.dtype(at::kByte)),
                   from = on_host ? x : at::empty(x.sizes(), host.dtype(ToScalarType(in.dtype))),
                   to = on_host ? y : at::empty(y.sizes(), host.dtype(ToScalarType(out.dtype)));
  return [=, ranks = a.ranks] {
    if (!on_host) from.copy_(x);
    const absl::Status status = call.Run(ranks, from.data_ptr(), to.data_ptr(), workspace.data_ptr());
    if (!status.ok()) throw KernelFailure(status);
    if (!on_host) y.copy_(to);
  };
}

constexpr NamedKernel kKernels[] = {
    {"AllReduce", {Exchange, Types::kNumber}},
    {"AllGather", {Exchange, Types::kAny}},
    {kAwaitGather, {Exchange, Types::kAny}},  // gathers do not go on meanwhile
    {"ReduceScatter", {Exchange, Types::kNumber}},
};

}  // namespace

std::span<const NamedKernel> CollectiveKernels() { return kKernels; }

}  // namespace onnxtrain::aten
