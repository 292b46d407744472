#include "backends/cpu/runtime/program.h"

#include <omp.h>

#include <algorithm>
#include <functional>

#include "backends/cpu/runtime/dnnl_call.h"
#include "frontend/base/status.h"
#include "frontend/graph/graph.h"
#include "frontend/ops/added_ops.h"

namespace onnxtrain::cpu {
namespace {

// The capacity of oneDNN's primitive cache. Above it, unused kernels are dropped whenever the number of kernels has
// doubled since the last time.
constexpr size_t kMaxKernels = 1024;

absl::StatusOr<Kernel> PrepareNode(const Graph& graph, const Node& node) {
  RETURN_IF_ERROR(CheckJitMemory());
  return PrepareKernel(graph, node);
}

// All threads share the cache: without the mutex, a thread that reads the capacity while another has set it to 0 would
// leave it at 0.
void EmptyDnnlCache() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const int capacity = dnnl::get_primitive_cache_capacity();
  dnnl::set_primitive_cache_capacity(0);
  dnnl::set_primitive_cache_capacity(capacity);
}

}  // namespace

size_t KernelCache::Hash::operator()(const Signature& signature) const {
  size_t hash = MixHash(std::hash<std::string>()(signature.op), HashAttrs(signature.attrs));
  const auto add = [&](size_t x) { hash = MixHash(hash, x); };
  for (const auto& input : signature.inputs) {
    add(input ? static_cast<size_t>(input->dtype) : ~size_t{0});
    for (int64_t extent : input ? input->shape : Shape()) add(static_cast<size_t>(extent));
  }
  for (const auto& [input, constant] : signature.constants) {
    add(input);
    add(HashTensor(constant));
  }
  return hash;
}

KernelCache::Signature KernelCache::MakeSignature(const Graph& graph, const Node& node) {
  Signature signature{.op = node.op, .attrs = node.attrs, .threads = omp_get_max_threads()};
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId v = node.inputs[i];
    signature.inputs.push_back(v == kNoValue ? std::nullopt : std::optional(graph.type(v)));
    const HostTensor* constant = v == kNoValue ? nullptr : graph.FindConstant(v);
    if (constant != nullptr && constant->size() == 1) signature.constants.emplace_back(i, *constant);
  }
  for (ValueId v : node.outputs) signature.outputs.push_back(graph.type(v));
  return signature;
}

absl::StatusOr<std::shared_ptr<const Kernel>> KernelCache::Get(const Graph& graph, const Node& node) {
  // Host kernels may have state and depend on constants, so they are not cached.
  if (FindHostKernels(node.op) != nullptr) {
    auto own = PrepareKernel(graph, node);
    if (!own.ok()) return Annotate(own.status(), NodeTag(node));
    return std::make_shared<const Kernel>(*std::move(own));
  }
  Signature signature = MakeSignature(graph, node);
  const std::lock_guard lock(mutex_);
  if (const auto found = kernels_.find(signature); found != kernels_.end()) return found->second;
  absl::StatusOr<Kernel> prepared = absl::InternalError("");
  RETURN_IF_ERROR(Annotate(CatchDnnlErrors([&] { prepared = PrepareNode(graph, node); }), NodeTag(node)));
  if (!prepared.ok()) return Annotate(prepared.status(), NodeTag(node));
  ++prepared_;
  if (kernels_.size() >= std::max(kMaxKernels, 2 * used_)) EraseUnused();
  return kernels_.emplace(std::move(signature), std::make_shared<const Kernel>(*std::move(prepared))).first->second;
}

void KernelCache::DropUnused() {
  const std::lock_guard lock(mutex_);
  if (EraseUnused() > 0) EmptyDnnlCache();
}

// Returns the number of erased kernels. The caller holds the mutex.
size_t KernelCache::EraseUnused() {
  const size_t erased = std::erase_if(kernels_, [](const auto& entry) { return entry.second.use_count() == 1; });
  used_ = kernels_.size();
  return erased;
}

std::shared_ptr<void> KernelCache::Hold() {
  const std::lock_guard lock(mutex_);
  ++held_;
  return {static_cast<void*>(this), [this](void*) { Release(); }};
}

void KernelCache::Release() {
  const std::lock_guard lock(mutex_);
  if (--held_ > 0) return;
  kernels_.clear();
  used_ = 0;
  EmptyDnnlCache();
}

int64_t KernelCache::prepared() const {
  const std::lock_guard lock(mutex_);
  return prepared_;
}

}  // namespace onnxtrain::cpu
