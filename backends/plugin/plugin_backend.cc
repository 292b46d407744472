#include "backends/plugin/plugin_backend.h"

#include "absl/strings/str_join.h"
#include "backends/plugin/host_node.h"
#include "backends/plugin/plugin_library.h"
#include "backends/plugin/plugin_program.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/decompose.h"
#include "frontend/passes/pass.h"
#include "frontend/plugin/library.h"

namespace onnxtrain {
namespace {

class PluginBackend : public Backend {
 public:
  PluginBackend(std::shared_ptr<PluginLibrary> library, std::unique_ptr<Backend> host, std::string device)
      : library_(std::move(library)), host_(std::move(host)), device_(std::move(device)) {}

  std::string name() const override { return library_->api().name; }
  std::string device() const override { return device_; }
  std::string description() const override { return StrCat(name(), ": ", library_->Describe()); }

  bool Supports(const Graph& graph, const Node& node) const override {
    return RunsAlone(graph, node) || host_->Supports(graph, node);
  }
  absl::StatusOr<Graph> Legalize(const Graph& graph) const override {
    const auto lacks = [this](const Graph& g, const Node& n) { return !RunsAlone(g, n); };
    const std::vector<Pass> passes = {
        {"decompose", [&](const Graph& g) { return DecomposeNodes(g, lacks); }, AnyNode(lacks)}, DcePass()};
    ASSIGN_OR_RETURN(const Graph legal, RunPasses(graph, passes));
    std::vector<std::string> lacking;
    for (const Node& node : legal.nodes()) {
      if (lacks(legal, node) && !HostRuns(*host_, legal, node)) lacking.push_back(NodeTag(node));
    }
    if (lacking.empty()) return legal;
    return absl::UnimplementedError(StrCat("backend ", name(), " cannot run ", absl::StrJoin(lacking, ", ")));
  }
  absl::StatusOr<std::vector<size_t>> Workspaces(const Graph& graph) const override {
    return PluginWorkspaces(*library_, *host_, graph);
  }
  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& legal, const CompileOptions& options) override {
    return MakePluginProgram(library_, *host_, legal, options);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return library_->has_memory() ? library_->Allocate(library_, bytes) : host_->Allocate(bytes);
  }
  bool ReadsHostMemory() const override { return !library_->has_memory(); }
  size_t FreeMemory() const override { return library_->has_memory() ? library_->FreeMemory() : host_->FreeMemory(); }
  absl::Status Synchronize() override { return library_->has_memory() ? library_->Synchronize() : absl::OkStatus(); }

 private:
  // Constants and views need no kernel.
  bool RunsAlone(const Graph& graph, const Node& node) const {
    return node.op == "Constant" || FindOp(node.op)->view || LibraryRuns(*library_, graph, node);
  }

  std::shared_ptr<PluginLibrary> library_;
  std::unique_ptr<Backend> host_;
  std::string device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreatePluginBackend(const std::string& path, const BackendOptions& options,
                                                             std::unique_ptr<Backend> host) {
  ASSIGN_OR_RETURN(const OnnxtrainBackendApi* api, LoadBackendApi(path));
  if (api == nullptr) return Invalid(path, ": exports no OnnxtrainGetBackend");
  auto library = PluginLibrary::Create(*api, {.device = options.device.c_str(), .threads = options.threads});
  if (!library.ok()) return Annotate(library.status(), StrCat(path, ": "));
  std::string device = "cpu";
  if ((*library)->has_memory())
    device = options.device == "auto" || options.device == "cpu" ? std::string(api->name) : options.device;
  return std::make_unique<PluginBackend>(*std::move(library), std::move(host), std::move(device));
}

}  // namespace onnxtrain
