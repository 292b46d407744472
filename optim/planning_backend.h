// A backend that plans everything and allocates nothing: for asking what a session would need.
#pragma once

#include "backends/backend.h"

namespace onnxtrain {

class PlanningBackend : public Backend {
 public:
  // `backend` must outlive it.
  explicit PlanningBackend(Backend& backend) : backend_(backend) {}

  std::string name() const override { return backend_.name(); }
  std::string device() const override { return backend_.device(); }
  std::string description() const override { return backend_.description(); }
  bool Supports(const Graph& graph, const Node& node) const override { return backend_.Supports(graph, node); }
  absl::StatusOr<Graph> Legalize(const Graph& graph) const override { return backend_.Legalize(graph); }
  absl::StatusOr<std::vector<size_t>> Workspaces(const Graph& graph) const override { return backend_.Workspaces(graph); }
  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& graph, const CompileOptions& options) override {
    return backend_.Compile(graph, options);
  }
  // Buffers have no memory: what is written is forgotten, zeros are read.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override;
  size_t FreeMemory() const override { return std::numeric_limits<size_t>::max(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  Backend& backend_;
};

}  // namespace onnxtrain
