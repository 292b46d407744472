// A backend that compiles but allocates nothing, to compute the memory that a session would need.
#pragma once

#include "backends/backend.h"

namespace onnxtrain {

class PlanningBackend : public Backend {
 public:
  // `backend` must outlive this object.
  explicit PlanningBackend(Backend& backend) : backend_(backend) {}

  std::string name() const override { return backend_.name(); }
  std::string device() const override { return backend_.device(); }
  std::string description() const override { return backend_.description(); }
  bool Supports(const Graph& graph, const Node& node) const override { return backend_.Supports(graph, node); }
  absl::StatusOr<Graph> Legalize(const Graph& graph) const override { return backend_.Legalize(graph); }
  absl::StatusOr<FusedGraph> Fuse(const Graph& legal) const override { return backend_.Fuse(legal); }
  absl::StatusOr<std::vector<size_t>> Workspaces(const Graph& graph) const override {
    return backend_.Workspaces(graph);
  }
  bool FusesElementwise() const override { return backend_.FusesElementwise(); }
  int64_t PreparedKernels() const override { return backend_.PreparedKernels(); }
  void DropUnusedKernels() override { backend_.DropUnusedKernels(); }
  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& legal, const CompileOptions& options) override {
    return backend_.Compile(legal, options);
  }
  // Returns a buffer without memory: writes are dropped, reads return zeros.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override;
  std::unique_ptr<Buffer> Borrow(const HostTensor& tensor) override { return backend_.Borrow(tensor); }
  bool ReadsHostMemory() const override { return backend_.ReadsHostMemory(); }
  size_t FreeMemory() const override { return std::numeric_limits<size_t>::max(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  Backend& backend_;
};

}  // namespace onnxtrain
