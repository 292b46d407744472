#include "backends/torch/kernel.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include "backends/torch/attention/attention_op.h"
#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/layout/channels_last.h"
#include "backends/torch/multi_tensor/multi_tensor.h"
#include "backends/torch/products/wide_matmul.h"
#include "backends/torch/tensor.h"
#include "frontend/base/status.h"
#include "frontend/ops/added_ops.h"
#include "frontend/ops/layout.h"

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

at::Tensor Args::Out(size_t i) const {
  if (out[i].defined()) return out[i];
  const Type& type = graph.type(node.outputs[i]);
  const at::Tensor scratch = at::empty(type.shape, options(ToScalarType(type.dtype)));
  return HasBit(channels_last_outputs, i) ? scratch.movedim(-1, 1) : scratch;
}

const Kernels& AllKernels() {
  static const Kernels* kernels = [] {
    RegisterFusedOp();
    RegisterAttentionOps();
    RegisterChannelsLastOps();
    RegisterSumOfSquares();
    RegisterCastTogether();
    RegisterWideMatMul();
    auto* table = new Kernels;
    for (std::span<const NamedKernel> family : {ONNXTRAIN_TORCH_KERNEL_FAMILIES}) {
      for (const NamedKernel& row : family) table->Add(row.op, row.kernel);
    }
    return table;
  }();
  return *kernels;
}

void AlignRanks(Args& args) {
  if (!args.out[0].defined()) return;
  for (at::Tensor& in : args.in) {
    if (in.defined() && in.numel() == args.out[0].numel() && in.dim() != args.out[0].dim()) {
      in = in.view(args.out[0].sizes());
    }
  }
}

namespace {

bool TakesFloat(DType dtype, at::Device device) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || (IsFloat(dtype) && device.is_cuda());
}

bool Takes(Types types, DType dtype, at::Device device) {
  const bool integer = IsInteger(dtype) && !IsStoredAsSigned(dtype);
  switch (types) {
    case Types::kFloat:
      return TakesFloat(dtype, device);
    case Types::kNumber:
      return TakesFloat(dtype, device) || integer;
    case Types::kNative:
      return TakesFloat(dtype, device) || integer || dtype == DType::kBool;
    case Types::kAny:
      return true;
    case Types::kRandom:
      return TakesFloat(dtype, device) || dtype == DType::kUInt32;
  }
  return false;
}

}  // namespace

bool HasKernel(const Graph& graph, const Node& node, at::Device device) {
  const Kernel* kernel = AllKernels().Find(node.op);
  if (kernel == nullptr) return HasHostKernel(graph, node, device);
  auto takes = [&](ValueId v) { return v == kNoValue || Takes(kernel->types, graph.type(v).dtype, device); };
  return std::all_of(node.inputs.begin(), node.inputs.end(), takes) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), takes);
}

}  // namespace onnxtrain::aten
