#include "backends/backend.h"

#include <hwy/highway.h>
#include <dnnl.hpp>

#include "backends/cpu/kernels/amx.h"
#include "backends/cpu/lower/passes.h"
#include "backends/cpu/ops/ops.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/parallel.h"
#include "backends/cpu/runtime/program.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

// Returns the instruction set that the vector kernels use.
std::string_view VectorTarget() {
  const int64_t target = hwy::SupportedAndGeneratedTargets().front();
  return target == HWY_AVX3 ? "AVX-512" : hwy::TargetName(target);
}

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options) : options_(options) {}

  std::string name() const override { return "cpu"; }
  std::string device() const override { return "cpu"; }
  std::string description() const override {
    const dnnl_version_t* v = dnnl::version();
    SetNumThreads(options_.threads);
    const int threads = omp_get_max_threads();
    return StrCat("cpu: oneDNN ", v->major, ".", v->minor, ".", v->patch, ", vector kernels for ", VectorTarget(),
                  HasAmx() ? " and AMX, " : ", ", threads, threads == 1 ? " thread" : " threads");
  }

  bool Supports(const Graph& graph, const Node& node) const override {
    return node.op == "Constant" || FindKernel(graph, node) != nullptr;
  }
  absl::StatusOr<Graph> Legalize(const Graph& graph) const override {
    SetNumThreads(options_.threads);  // oneDNN's layouts depend on the number of threads
    return LegalizeGraph(graph);
  }
  absl::StatusOr<FusedGraph> Fuse(const Graph& legal) const override { return FuseKernels(legal); }
  absl::StatusOr<std::vector<size_t>> Workspaces(const Graph& graph) const override {
    return NodeWorkspaces(graph, options_.threads, kernels_);
  }
  int64_t PreparedKernels() const override { return kernels_.prepared(); }
  void DropUnusedKernels() override { kernels_.DropUnused(); }
  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& legal, const CompileOptions& options) override {
    return CompileProgram(legal, options, options_.threads, kernels_);
  }
  bool FusesElementwise() const override { return true; }
  bool Offloads() const override { return true; }
  bool ReadsHostMemory() const override { return true; }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override { return AllocateBuffer(bytes); }
  std::unique_ptr<Buffer> Borrow(const HostTensor& tensor) override { return BorrowTensor(tensor); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  BackendOptions options_;
  mutable KernelCache kernels_;
};

}  // namespace
}  // namespace onnxtrain::cpu

extern "C" onnxtrain::Backend* onnxtrain_create_backend(const onnxtrain::BackendOptions& options,
                                                        absl::Status* status) {
  if (options.device != "cpu") {
    *status = onnxtrain::Invalid("the cpu backend has no device '", options.device, "'");
    return nullptr;
  }
  onnxtrain::cpu::RegisterCpuOps();
  *status = absl::OkStatus();
  return new onnxtrain::cpu::CpuBackend(options);
}
