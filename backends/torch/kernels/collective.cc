// Collective operators over the group of ranks that the program is bound to. Without a group, while scratch is
// measured, they exchange nothing.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "backends/collective_call.h"
#include "backends/kernel_table.h"
#include "backends/torch/kernel.h"
#include "backends/torch/tensor.h"
#include "frontend/ops/collective.h"

namespace onnxtrain::aten {
namespace {

// Returns the type of sums: float32 for half precision.
DType SumType(const Args& a) {
  const DType dtype = a.graph.type(a.node.inputs[0]).dtype;
  return IsFloat(dtype) && DTypeSize(dtype) == 2 ? DType::kFloat32 : dtype;
}

std::span<std::byte> Bytes(const at::Tensor& dense) {
  return {static_cast<std::byte*>(dense.data_ptr()), dense.nbytes()};
}

// Calls `exchange` for the memory of two tensors.
template <typename Exchange>
void Call(const Exchange& exchange, const at::Tensor& from, const at::Tensor& to) {
  const absl::Status status = exchange(Bytes(from), Bytes(to));
  if (!status.ok()) throw KernelFailure(status);
}

// Adds the parts of all ranks, [ranks, …], in rank order.
void AddParts(const at::Tensor& parts, const at::Tensor& sum) {
  at::Tensor total = sum.scalar_type() == parts.scalar_type() ? sum : at::empty(sum.sizes(), parts.options());
  total.copy_(parts[0]);
  for (int64_t r = 1; r < parts.size(0); ++r) total.add_(parts[r]);
  if (!total.is_same(sum)) sum.copy_(total);
}

// Returns the view [outer, ranks, block] of a tensor with the parts of all ranks along the axis of the node.
at::Tensor ViewParts(const at::Tensor& whole, const Args& a, int64_t ranks) {
  int64_t outer = 1;
  for (int64_t i = 0; i < a.attrs().Int("axis"); ++i) outer *= whole.size(i);
  return whole.view({outer, ranks, whole.numel() / (outer * ranks)});
}

constexpr char kReduce[] = "all-reduce of the graph";

Run ReduceOnDevice(const Args& a) {
  const DType dtype = SumType(a);
  const at::ScalarType type = ToScalarType(dtype);
  const at::Tensor x = a.in[0], y = a.Out(0), sum = y.scalar_type() == type ? y : at::empty(x.sizes(), a.options(type));
  if (a.attrs().Int("deterministic") == 0 || !IsFloat(dtype)) {
    const auto reduce = [ranks = a.ranks, dtype](auto values, auto) {
      return ranks->AllReduce(kReduce, dtype, values, Reduction::kSum);
    };
    return [=] {
      sum.copy_(x);
      Call(reduce, sum, sum);
      y.copy_(sum);
    };
  }
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), a.ranks->size());
  const at::Tensor parts = at::empty(shape, sum.options());
  const auto gather = [ranks = a.ranks](auto own, auto all) { return ranks->AllGather(kReduce, own, all); };
  return [=] {
    sum.copy_(x);
    Call(gather, sum, parts);
    AddParts(parts, y);
  };
}

Run GatherOnDevice(const Args& a) {
  const int64_t size = a.ranks->size();
  const at::Tensor x = a.in[0], y = a.Out(0), whole = ViewParts(y, a, size);
  const at::Tensor parts = at::empty({size, whole.size(0), whole.size(2)}, x.options());
  const auto gather = [ranks = a.ranks](auto own, auto all) {
    return ranks->AllGather("all-gather of the graph", own, all);
  };
  return [=] {
    Call(gather, x, parts);
    whole.copy_(parts.transpose(0, 1));
  };
}

Run ScatterOnDevice(const Args& a) {
  const int64_t size = a.ranks->size();
  const at::Tensor x = a.in[0], y = a.Out(0), whole = ViewParts(x, a, size);
  const at::Tensor own = at::empty({size, whole.size(0), whole.size(2)}, a.options(ToScalarType(SumType(a)))),
                   parts = at::empty_like(own);
  const auto exchange = [ranks = a.ranks](auto sent, auto received) {
    return ranks->AllToAll("reduce-scatter of the graph", sent, received);
  };
  return [=] {
    own.copy_(whole.transpose(0, 1));
    Call(exchange, own, parts);
    AddParts(parts, y.view({parts.size(1), parts.size(2)}));
  };
}

// Exchanges device memory. AwaitGather only copies, because AllGather blocks.
Run ExchangeOnDevice(const Args& a) {
  if (a.in[0].numel() == 0) return {};
  if (a.node.op == "AllReduce") return ReduceOnDevice(a);
  if (a.node.op == "AllGather") return GatherOnDevice(a);
  if (a.node.op == "ReduceScatter") return ScatterOnDevice(a);
  return [x = a.in[0], y = a.Out(0)] { y.copy_(x); };
}

// Prepares any collective operator. If the group works on host memory, copies values from the device to the host and
// back.
Run Exchange(const Args& a) {
  if (a.ranks != nullptr && a.ranks->on_device() && a.ranks->size() > 1) return ExchangeOnDevice(a);
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

}  // namespace

std::span<const NamedKernel> CollectiveKernels() {
  static constexpr NamedKernel kKernels[] = {
      {"AllReduce", {Exchange, Types::kNumber}},
      {"AllGather", {Exchange, Types::kAny}},
      {kAwaitGather, {Exchange, Types::kAny}},  // a copy: AllGather blocks until it has finished
      {"ReduceScatter", {Exchange, Types::kNumber}},
  };
  return kKernels;
}

}  // namespace onnxtrain::aten
