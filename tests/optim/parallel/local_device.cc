#include "tests/optim/parallel/local_device.h"

#include <utility>

#include "backends/registry.h"
#include "backends/torch/nccl/nccl_collectives.h"
#include "tests/optim/parallel/local_nccl.h"

namespace onnxtrain {
namespace {

class LocalDevice : public Backend {
 public:
  explicit LocalDevice(std::unique_ptr<Backend> host) : host_(std::move(host)) {}

  std::string name() const override { return host_->name(); }
  std::string device() const override { return "local:0"; }
  std::string description() const override { return host_->description(); }
  bool Supports(const Graph& graph, const Node& node) const override { return host_->Supports(graph, node); }
  absl::StatusOr<Graph> Legalize(const Graph& graph) const override { return host_->Legalize(graph); }
  absl::StatusOr<FusedGraph> Fuse(const Graph& legal) const override { return host_->Fuse(legal); }
  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& legal, const CompileOptions& options) override {
    return host_->Compile(legal, options);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override { return host_->Allocate(bytes); }
  absl::Status Synchronize() override { return host_->Synchronize(); }
  absl::StatusOr<std::unique_ptr<Collectives>> MeetOnDevice(Collectives& host) override {
    static const auto* nccl = new aten::Nccl(LocalNccl());
    return aten::MeetOverNccl(nccl, std::make_unique<LocalQueue>(), host);
  }

 private:
  const std::unique_ptr<Backend> host_;
};

}  // namespace

std::unique_ptr<Backend> MakeTestBackend(const std::string& name) {
  auto backend = CreateBackend(name == kLocalDevice ? "torch" : name, {.threads = 1}).value();
  if (name != kLocalDevice) return backend;
  return std::make_unique<LocalDevice>(std::move(backend));
}

}  // namespace onnxtrain
