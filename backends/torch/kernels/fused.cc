// torch.Fused: generated kernels.
#include <array>
#include <stdexcept>

#include <ATen/ops/empty.h>

#include "backends/torch/fuse/fused_op.h"
#include "backends/torch/fuse/kernel_compiler.h"
#include "backends/torch/kernel.h"
#include "backends/torch/kernels/fused.h"
#include "frontend/base/status.h"

namespace onnxtrain::aten {
namespace {

// Becomes a Status again in CatchTorchErrors.
void ThrowUnless(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowUnless(value.status());
  return *std::move(value);
}

// The largest power of two up to 64 of which all addresses are multiples.
size_t FindAlignment(const Args& a) {
  uintptr_t bits = 64;
  for (const auto* list : {&a.in, &a.out}) {
    for (const at::Tensor& t : *list) bits |= t.defined() ? reinterpret_cast<uintptr_t>(t.data_ptr()) : 0;
  }
  return bits & -bits;
}

Run Fused(const Args& a) {
  const GeneratedKernel kernel = ValueOrThrow(GenerateFused(a));
  if (a.compiler == nullptr) throw std::runtime_error("no compiler for generated kernels");
  const std::shared_ptr<CompiledKernel> compiled = ValueOrThrow(a.compiler->Compile(kernel));
  std::array<void*, kMostPointers> pointers = {};
  size_t next = 0;
  std::vector<at::Tensor> tensors = a.in;
  for (size_t o = 0; o < a.out.size(); ++o) tensors.push_back(a.Out(o));
  for (const at::Tensor& t : tensors) pointers[next++] = t.data_ptr();
  const size_t workspace_pointer = next++;
  for (int64_t stream : kernel.streams) pointers[next++] = reinterpret_cast<void*>(stream);
  if (kernel.workspace == 0) return [=] { ThrowUnless(compiled->Launch(pointers)); };
  return [=, options = a.options(at::kByte), bytes = kernel.workspace]() mutable {
    const at::Tensor workspace = at::empty({bytes}, options);
    pointers[workspace_pointer] = workspace.data_ptr();
    ThrowUnless(compiled->Launch(pointers));
  };
}

}  // namespace

absl::StatusOr<GeneratedKernel> GenerateFused(const Args& a) {
  ASSIGN_OR_RETURN(const Graph body, ParseBody(a.attrs()));
  return GenerateKernel(body, FindAlignment(a));
}

namespace {

constexpr NamedKernel kKernels[] = {{kFusedOp, {Fused, Types::kAny}}};

}  // namespace

std::span<const NamedKernel> FusedKernels() { return kKernels; }

}  // namespace onnxtrain::aten
