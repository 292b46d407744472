#include "backends/torch/torch_backend.h"

#include <numeric>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/version.h>

#include "absl/strings/str_join.h"
#include "backends/promote_types.h"
#include "backends/torch/attention/fuse_attention.h"
#include "backends/torch/cuda.h"
#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/guard.h"
#include "backends/torch/kernel.h"
#include "backends/torch/layout/channels_last.h"
#include "backends/torch/layout/expand_batch_norm.h"
#include "backends/torch/multi_tensor/multi_tensor.h"
#include "backends/torch/products/wide_matmul.h"
#include "backends/torch/tensor.h"
#include "frontend/base/status.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/eliminate.h"

namespace onnxtrain::aten {
namespace {

// A rewrite of a legalized graph that saves kernel launches on a GPU. It sets `values` to the new values, indexed by
// old ones.
struct Lowering {
  std::string_view name;
  absl::StatusOr<Graph> (*rewrite)(const Graph& graph, std::vector<ValueId>* values);
};

class TorchBackend : public Backend {
 public:
  TorchBackend(at::Device device, KernelCompiler* compiler, bool tf32)
      : device_(device), compiler_(compiler), tf32_(tf32) {}

  std::string name() const override { return "torch"; }
  std::string device() const override { return device_.str(); }
  std::string description() const override {
    return StrCat("libtorch ", TORCH_VERSION, " on ", device(), ", ", at::get_num_threads(), " threads");
  }

  bool Supports(const Graph& graph, const Node& node) const override {
    return IsConstant(node) || HasKernel(graph, node, device_);
  }

  absl::StatusOr<Graph> Legalize(const Graph& graph) const override {
    const auto lacks = [this](const Graph& g, const Node& n) { return !Supports(g, n); };
    std::vector<Pass> passes = {
        {"fuse_attention", [&](const Graph& g) { return FuseAttention(g, MakeAttentionChooser(device_)); },
         AnyNode(IsFusableAttention)},
        {"decompose", [&](const Graph& g) { return DecomposeNodes(g, lacks); }, AnyNode(lacks)},
        {"promote_unsigned", [&](const Graph& g) { return PromoteUnsignedToInt64(g, lacks); }, AnyNode(lacks)},
        DcePass(),
    };
    // A GPU has a half precision kernel for every operator with a kernel, so nothing is promoted.
    if (device_.is_cpu())
      passes.insert(passes.begin() + 1,
                    {"promote_half", [&](const Graph& g) { return PromoteHalfToFloat(g, lacks); }, AnyNode(lacks)});
    if (device_.is_cuda())
      passes.insert(passes.end() - 1, {"fuse_sums_of_squares", FuseSumsOfSquares, AnyNodeOf("SquaredNorm")});
    const auto wants = [this](const Graph& g, const Node& n) { return WantsChannelsLast(g, n, tf32_); };
    // On the CPU, libtorch's kernels convert layouts in every call anyway.
    if (device_.is_cuda())
      passes.insert(
          passes.end() - 1,
          {"assign_channels_last", [this](const Graph& g) { return AssignChannelsLast(g, tf32_); }, AnyNode(wants)});
    ASSIGN_OR_RETURN(const Graph legal, RunPasses(graph, passes));
    RETURN_IF_ERROR(CheckSupported(legal));
    return legal;
  }

  absl::StatusOr<FusedGraph> Fuse(const Graph& legal) const override {
    ASSIGN_OR_RETURN(FusedGraph fused, Backend::Fuse(legal));
    if (Lowerings().empty()) return fused;
    std::vector<ValueId> now;
    const auto follow = [&](absl::StatusOr<Graph> rewritten) {
      for (ValueId& v : fused.values) v = v == kNoValue || !rewritten.ok() ? v : now[v];
      return rewritten;
    };
    std::vector<Pass> passes;
    for (const Lowering& lowering : Lowerings()) {
      passes.push_back(
          {std::string(lowering.name), [&, lowering](const Graph& g) { return follow(lowering.rewrite(g, &now)); }});
    }
    passes.push_back({"dce", [&](const Graph& g) { return follow(Dce(g, {}, &now)); }});
    ASSIGN_OR_RETURN(fused.graph, RunPasses(std::move(fused.graph), passes));
    return fused;
  }

  // Fuses nothing if every value must be fetchable (keep_values).
  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& legal, const CompileOptions& options) override {
    RETURN_IF_ERROR(CheckSupported(legal));
    std::vector<Pass> passes;
    for (const Lowering& lowering : options.keep_values ? std::vector<Lowering>() : Lowerings())
      passes.push_back({std::string(lowering.name), [=](const Graph& g) { return lowering.rewrite(g, nullptr); }});
    if (passes.empty()) return MakeProgram(legal, options, device_, compiler_);
    passes.push_back(DcePass());
    ASSIGN_OR_RETURN(const Graph fused, RunPasses(legal, passes));
    return MakeProgram(fused, options, device_, compiler_);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override { return AllocateBuffer(bytes, device_); }

  size_t FreeMemory() const override { return device_.is_cpu() ? Backend::FreeMemory() : FreeDeviceMemory(device_); }
  absl::Status Synchronize() override {
    return CatchTorchErrors("", [this] { SynchronizeDevice(device_); });
  }
  absl::StatusOr<std::unique_ptr<Collectives>> MeetOnDevice(Collectives& host) override {
    return aten::MeetOnDevice(device_, host);
  }

 private:
  std::vector<Lowering> Lowerings() const {
    std::vector<Lowering> lowerings;
    if (device_.is_cuda())
      lowerings = {{"cast_weights_together", CastWeightsTogether}, {"widen_products", WidenProducts}};
    if (compiler_ != nullptr) {
      lowerings.push_back({"expand_batch_norms", ExpandBatchNorms});
      lowerings.push_back({"fuse_graph", FuseGraph});
    }
    return lowerings;
  }

  absl::Status CheckSupported(const Graph& graph) const {
    std::vector<std::string> lacking;
    for (const Node& node : graph.nodes()) {
      if (!Supports(graph, node)) lacking.push_back(Describe(graph, node));
    }
    if (lacking.empty()) return absl::OkStatus();
    return absl::UnimplementedError(StrCat("backend torch cannot run ", absl::StrJoin(lacking, ", ")));
  }

  // Formats a node and its operand types for messages: "[Exp 'layer1/exp'] of i64[3]".
  static std::string Describe(const Graph& graph, const Node& node) {
    std::vector<std::string> types;
    for (ValueId v : node.inputs) types.push_back(v == kNoValue ? "nothing" : ToString(graph.type(v)));
    return StrCat(NodeTag(node), "of ", absl::StrJoin(types, " "));
  }

  at::Device device_;
  KernelCompiler* compiler_;
  bool tf32_;
};

}  // namespace

std::unique_ptr<Backend> MakeTorchBackend(at::Device device, KernelCompiler* compiler, bool tf32) {
  return std::make_unique<TorchBackend>(device, compiler, tf32);
}

namespace {

// Fails if this libtorch lacks the device. The message is shorter than libtorch's, which lists all its devices.
absl::Status CheckDevice(at::Device device) {
  if (c10::impl::hasDeviceGuardImpl(device.type())) return absl::OkStatus();
  return absl::UnavailableError(StrCat("device ", device.str(), ": this libtorch (", TORCH_VERSION,
                                       ") has no kernels for it; tools/setup_cuda.sh installs one with CUDA"));
}

// Sets TF32 for the whole process. By default, libtorch uses it in convolutions.
void AllowTf32(bool allow) {
  at::globalContext().setAllowTF32CuBLAS(allow);
  at::globalContext().setAllowTF32CuDNN(allow);
}

absl::StatusOr<std::unique_ptr<Backend>> Create(const BackendOptions& options) {
  std::unique_ptr<Backend> backend;
  absl::Status known;
  RETURN_IF_ERROR(CatchTorchErrors(StrCat("device ", options.device, ": "), [&] {
    const at::Device device(options.device);
    known = CheckDevice(device);
    if (!known.ok()) return;
    // ATen has one thread count for the whole process.
    if (options.threads > 0) at::set_num_threads(options.threads);
    AllowTf32(options.tf32);
    at::zeros({1}, at::TensorOptions().device(device));  // fails if the device does not exist
    backend = MakeTorchBackend(device, FindKernelCompiler(device), options.tf32);
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
