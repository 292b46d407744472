// Kernels of torch.Fused, which are generated and compiled when they are prepared.
#include <array>
#include <stdexcept>

#include <ATen/ops/empty.h>

#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/fuse/kernel_compiler.h"
#include "backends/torch/kernel.h"
#include "backends/torch/kernels/fused.h"
#include "backends/torch/tensor.h"
#include "frontend/base/status.h"

namespace onnxtrain::aten {
namespace {

// Throws an error, which CatchTorchErrors converts back to a Status.
void ThrowUnless(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowUnless(value.status());
  return *std::move(value);
}

// Returns the largest power of two up to 64 that divides all addresses.
size_t FindAlignment(const Args& a) {
  uintptr_t bits = 64;
  for (const auto* list : {&a.in, &a.out}) {
    for (const at::Tensor& t : *list) bits |= t.defined() ? reinterpret_cast<uintptr_t>(t.data_ptr()) : 0;
  }
  return bits & -bits;
}

using Pointers = std::array<void*, kMostPointers>;

// Stores the addresses of inputs and outputs. Returns their number.
size_t FillPointers(const Args& a, Pointers* pointers) {
  size_t next = 0;
  for (const at::Tensor& t : a.in) (*pointers)[next++] = t.data_ptr();
  for (size_t o = 0; o < a.out.size(); ++o) (*pointers)[next++] = a.Out(o).data_ptr();
  return next;
}

Run Fused(const Args& a) {
  const GeneratedKernel kernel = ValueOrThrow(GenerateFused(a));
  if (a.compiler == nullptr) throw std::runtime_error("no compiler for generated kernels");
  const std::shared_ptr<CompiledKernel> compiled = ValueOrThrow(a.compiler->Compile(kernel));
  Pointers pointers = {};
  size_t next = FillPointers(a, &pointers);
  const size_t workspace_pointer = next++;
  for (int64_t stream : kernel.streams) pointers[next++] = reinterpret_cast<void*>(stream);
  if (kernel.workspace == 0) return [=] { ThrowUnless(compiled->Launch(pointers, /*blocks=*/0)); };
  return [=, options = a.options(at::kByte), bytes = kernel.workspace]() mutable {
    const at::Tensor workspace = at::empty({bytes}, options);
    pointers[workspace_pointer] = workspace.data_ptr();
    ThrowUnless(compiled->Launch(pointers, /*blocks=*/0));
  };
}

}  // namespace

absl::StatusOr<GeneratedKernel> GenerateFused(const Args& a) {
  ASSIGN_OR_RETURN(const Graph body, ParseBody(a.attrs()));
  return GenerateKernel(body, FindAlignment(a));
}

absl::StatusOr<BatchKernel> GenerateFusedBatch(const Args& a) {
  ASSIGN_OR_RETURN(const Graph body, ParseBody(a.attrs()));
  return GenerateBatchKernel(body, FindAlignment(a));
}

Run PrepareBatch(std::span<const Args> nodes, std::span<const BatchKernel> kernels) {
  const Type type{DType::kUInt8, {static_cast<int64_t>(nodes.size() * sizeof(BatchEntry))}};
  HostTensor table(type);
  auto* entries = reinterpret_cast<BatchEntry*>(table.mutable_bytes().data());
  int64_t blocks = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    entries[i] = {.pointers = {}, .elements = kernels[i].elements, .first_block = blocks};
    FillPointers(nodes[i], &entries[i].pointers);
    blocks += kernels[i].kernel.launches[0].blocks;
  }
  const std::shared_ptr<CompiledKernel> compiled = ValueOrThrow(nodes[0].compiler->Compile(kernels[0].kernel));
  const at::Tensor uploaded = Upload(table, nodes[0].device);
  const Pointers pointers = {uploaded.data_ptr(), reinterpret_cast<void*>(nodes.size())};
  return [=, keep = uploaded] { ThrowUnless(compiled->Launch(pointers, blocks)); };
}

std::span<const NamedKernel> FusedKernels() {
  static constexpr NamedKernel kKernels[] = {{kFusedOp, {Fused, Types::kAny}}};
  return kKernels;
}

}  // namespace onnxtrain::aten
