// A compiled program that owns its memory, for probes, comparisons and tests. The programs of a session share memory
// instead (optim/step/program/programs.h).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "backends/backend.h"

namespace onnxtrain {

class BoundProgram {
 public:
  // Compiles a legalized graph. Every input, every output that goes into no input, and the arena get a zeroed buffer
  // each, so that a sanitizer finds accesses beyond an operand. The backend must outlive the program.
  static absl::StatusOr<BoundProgram> Make(Backend& backend, const Graph& legal, const CompileOptions& options = {});
  // Compiles like Make, but all outputs share one buffer, for measurements that read no output.
  static absl::StatusOr<BoundProgram> MakeForTiming(Backend& backend, const Graph& legal);

  Program& program() { return *program_; }
  const Graph& graph() const { return program_->graph(); }

  // Writes an input. Fails with kInvalidArgument if the graph has no such input or the type differs.
  absl::Status Set(std::string_view input, const HostTensor& value);
  absl::Status Run();  // waits for the device
  // Reads an output or, if no output has the name, an input (such as a state after an update).
  absl::StatusOr<HostTensor> Get(std::string_view name) const;

 private:
  using Buffers = std::map<std::string, std::unique_ptr<Buffer>, std::less<>>;

  explicit BoundProgram(Backend& backend) : backend_(&backend) {}
  absl::Status Compile(const Graph& legal, const CompileOptions& options);
  absl::Status Bind();
  absl::Status BindOutputs();
  absl::Status BindSharedOutputs();
  absl::Status CheckTotal() const;
  absl::StatusOr<BufferView> NewBuffer(ValueId value, std::unique_ptr<Buffer>* buffer);

  Backend* backend_;
  Buffers inputs_, outputs_;
  std::unique_ptr<Buffer> shared_output_;
  std::unique_ptr<Buffer> arena_;
  std::unique_ptr<Program> program_;  // destroyed before its memory
};

}  // namespace onnxtrain
