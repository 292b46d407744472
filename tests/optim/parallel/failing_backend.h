// A backend that fails where a test asks it to.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "frontend/base/status.h"

namespace onnxtrain {

// What is left until the one failure: `calls` of the kind that fails.
struct Fault {
  enum class Of { kNothing, kRun, kEndOfRun, kCompile };
  Of of = Of::kNothing;
  int calls = 0;
  absl::Status error = absl::InternalError("the kernel is broken");

  absl::Status MeetRanks(Of at) {
    if (of != at || calls-- > 0) return absl::OkStatus();
    of = Of::kNothing;
    return error;
  }
};

class FailingProgram : public Program {
 public:
  FailingProgram(std::unique_ptr<Program> program, Fault* fault) : program_(std::move(program)), fault_(*fault) {}

  const Graph& graph() const override { return program_->graph(); }
  MemoryUse memory() const override { return program_->memory(); }
  absl::Status BindInput(std::string_view name, BufferView view) override { return program_->BindInput(name, view); }
  absl::Status BindOutput(std::string_view name, BufferView view) override { return program_->BindOutput(name, view); }
  absl::Status BindArena(BufferView view) override { return program_->BindArena(view); }
  absl::Status BindGroup(std::string_view name, Collectives* ranks) override {
    return program_->BindGroup(name, ranks);
  }
  bool NotifyWhenComplete(std::span<const std::vector<size_t>> groups, OutputListener* listener) override {
    return program_->NotifyWhenComplete(groups, listener);
  }
  void SetInterruption(Interruption where) override { program_->SetInterruption(where); }
  absl::Status Run() override {
    RETURN_IF_ERROR(fault_.MeetRanks(Fault::Of::kRun));
    RETURN_IF_ERROR(program_->Run());
    return fault_.MeetRanks(Fault::Of::kEndOfRun);
  }
  std::span<const double> NodeSeconds() const override { return program_->NodeSeconds(); }
  absl::StatusOr<HostTensor> Fetch(ValueId value) const override { return program_->Fetch(value); }

 private:
  std::unique_ptr<Program> program_;
  Fault& fault_;
};

class FailingBackend : public Backend {
 public:
  // `fault` must outlive it and its programs.
  FailingBackend(std::unique_ptr<Backend> backend, Fault* fault) : backend_(std::move(backend)), fault_(*fault) {}

  std::string name() const override { return backend_->name(); }
  std::string device() const override { return backend_->device(); }
  std::string description() const override { return backend_->description(); }
  bool Supports(const Graph& graph, const Node& node) const override { return backend_->Supports(graph, node); }
  absl::StatusOr<Graph> Legalize(const Graph& graph) const override { return backend_->Legalize(graph); }
  absl::StatusOr<FusedGraph> Fuse(const Graph& legal) const override { return backend_->Fuse(legal); }
  absl::StatusOr<std::vector<size_t>> Workspaces(const Graph& graph) const override {
    return backend_->Workspaces(graph);
  }
  absl::StatusOr<std::unique_ptr<Program>> Compile(const Graph& legal, const CompileOptions& options) override {
    RETURN_IF_ERROR(fault_.MeetRanks(Fault::Of::kCompile));
    ASSIGN_OR_RETURN(auto program, backend_->Compile(legal, options));
    return std::make_unique<FailingProgram>(std::move(program), &fault_);
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes) override { return backend_->Allocate(bytes); }
  absl::Status Synchronize() override { return backend_->Synchronize(); }

 private:
  std::unique_ptr<Backend> backend_;
  Fault& fault_;
};

}  // namespace onnxtrain
