#include "backends/torch/torch_backend.h"

#include <numeric>

#include <ATen/Parallel.h>
#include <torch/version.h>

#include "absl/strings/str_join.h"
#include "backends/promote_types.h"
#include "backends/torch/attention/fuse_attention.h"
#include "backends/torch/cuda.h"
#include "backends/torch/device_scope.h"
#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/guard.h"
#include "backends/torch/kernel.h"
#include "backends/torch/layout/channels_last.h"
#include "backends/torch/layout/expand_batch_norm.h"
#include "backends/torch/multi_tensor/multi_tensor.h"
#include "backends/torch/products/wide_matmul.h"
#include "backends/torch/program.h"
#include "backends/torch/tensor.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/decompose.h"

namespace onnxtrain::aten {
namespace {

// A rewrite of a legal graph that spares a GPU launches. Sets the new values by old ones.
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
    return node.op == "Constant" || HasKernel(graph, node, device_);
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
    // libtorch's kernels for the CPU convert in every call anyway.
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

  // Where every value has to be fetched, nothing is fused.
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

  // "[Exp 'layer1/exp'] of i64[3]"
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

}  // namespace onnxtrain::aten
