#include "backends/backend.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include "absl/strings/str_join.h"
#include "backends/promote_types.h"
#include "backends/torch/cuda.h"
#include "backends/torch/device_scope.h"
#include "backends/torch/guard.h"
#include "backends/torch/kernel.h"
#include "backends/torch/program.h"
#include "backends/torch/tensor.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/decompose.h"

namespace onnxtrain::aten {
namespace {

class TorchBackend : public Backend {
 public:
  explicit TorchBackend(at::Device device) : device_(device) {}

  std::string name() const override { return "torch"; }
  std::string device() const override { return device_.str(); }
  std::string description() const override {
    return StrCat("libtorch ", TORCH_VERSION, " on ", device(), ", ", at::get_num_threads(), " threads");
  }

  bool Supports(const Graph& graph, const Node& node) const override {
    return node.op == "Constant" || HasKernel(graph, node, device_);
  }

  absl::StatusOr<Graph> Legalize(const Graph& graph) const override {
    const auto lacks = [this](const Graph& g, const Node& n) { return !Supports(g, n); };
    std::vector<Pass> passes = {
        {"decompose", [&](const Graph& g) { return DecomposeNodes(g, lacks); }, AnyNode(lacks)},
        {"promote_unsigned", [&](const Graph& g) { return PromoteUnsignedToInt64(g, lacks); }, AnyNode(lacks)},
        DcePass(),
    };
    // A GPU has a half precision kernel for every operator with a kernel, so nothing is promoted.
    if (device_.is_cpu())
      passes.insert(passes.begin(),
                    {"promote_half", [&](const Graph& g) { return PromoteHalfToFloat(g, lacks); }, AnyNode(lacks)});
    ASSIGN_OR_RETURN(const Graph legal, RunPasses(graph, passes));
    RETURN_IF_ERROR(CheckSupported(legal));
    return legal;
  }

  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& graph, const CompileOptions& options) override {
    RETURN_IF_ERROR(CheckSupported(graph));
    return MakeProgram(graph, options, device_);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override { return AllocateBuffer(bytes, device_); }

  size_t FreeMemory() const override { return device_.is_cpu() ? Backend::FreeMemory() : FreeDeviceMemory(device_); }
  absl::Status Synchronize() override {
    return CatchTorchErrors("", [this] { SynchronizeDevice(device_); });
  }

 private:
  absl::Status CheckSupported(const Graph& graph) const {
    std::vector<std::string> lacking;
    for (const Node& node : graph.nodes()) {
      if (!Supports(graph, node)) lacking.push_back(Describe(graph, node));
    }
    if (lacking.empty()) return absl::OkStatus();
    return absl::UnimplementedError(StrCat("backend torch cannot run ", absl::StrJoin(lacking, ", ")));
  }

  // "[Exp 'layer1/exp'] of i64[3]"
  static std::string Describe(const Graph& graph, const Node& node) {
    std::vector<std::string> types;
    for (ValueId v : node.inputs) types.push_back(v == kNoValue ? "nothing" : ToString(graph.type(v)));
    return StrCat(NodeTag(node), "of ", absl::StrJoin(types, " "));
  }

  at::Device device_;
};

// Without the libraries of the device, libtorch's own message lists everything that it has.
absl::Status CheckDevice(at::Device device) {
  if (c10::impl::hasDeviceGuardImpl(device.type())) return absl::OkStatus();
  return absl::UnavailableError(StrCat("device ", device.str(), ": this libtorch (", TORCH_VERSION,
                                       ") has no kernels for it; tools/setup_cuda.sh installs one with CUDA"));
}

absl::StatusOr<std::unique_ptr<Backend>> Create(const BackendOptions& options) {
  std::unique_ptr<Backend> backend;
  absl::Status known;
  RETURN_IF_ERROR(CatchTorchErrors(StrCat("device ", options.device, ": "), [&] {
    const at::Device device(options.device);
    known = CheckDevice(device);
    if (!known.ok()) return;
    // The thread count is ATen's, one for the process.
    if (options.threads > 0) at::set_num_threads(options.threads);
    at::zeros({1}, at::TensorOptions().device(device));  // fails here where the device is not there
    backend = std::make_unique<TorchBackend>(device);
  }));
  RETURN_IF_ERROR(known);
  return backend;
}

}  // namespace
}  // namespace onnxtrain::aten

extern "C" onnxtrain::Backend* onnxtrain_create_backend(const onnxtrain::BackendOptions& options,
                                                        absl::Status* status) {
  auto backend = onnxtrain::aten::Create(options);
  *status = backend.status();
  return backend.ok() ? std::move(backend)->release() : nullptr;
}
