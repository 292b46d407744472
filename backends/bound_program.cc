#include "backends/bound_program.h"

#include <algorithm>

#include "backends/backend.h"
#include "frontend/base/status.h"

namespace onnxtrain {

absl::StatusOr<BoundProgram> BoundProgram::Make(Backend& backend, const Graph& legal, const CompileOptions& options) {
  BoundProgram bound(backend);
  RETURN_IF_ERROR(bound.Compile(legal, options));
  RETURN_IF_ERROR(bound.CheckTotal());
  RETURN_IF_ERROR(bound.Bind());
  RETURN_IF_ERROR(bound.BindOutputs());
  return bound;
}

absl::StatusOr<BoundProgram> BoundProgram::MakeForTiming(Backend& backend, const Graph& legal) {
  BoundProgram bound(backend);
  RETURN_IF_ERROR(bound.Compile(legal, {}));
  RETURN_IF_ERROR(bound.Bind());
  RETURN_IF_ERROR(bound.BindSharedOutputs());
  return bound;
}

absl::Status BoundProgram::Compile(const Graph& legal, const CompileOptions& options) {
  ASSIGN_OR_RETURN(program_, backend_->Compile(legal, options));
  return absl::OkStatus();
}

absl::Status BoundProgram::CheckTotal() const {
  size_t total = program_->memory().arena;
  for (const GraphInput& input : graph().inputs()) total += graph().type(input.value).bytes();
  for (const GraphOutput& output : graph().outputs()) {
    if (output.into == kNoValue) total += graph().type(output.value).bytes();
  }
  return CheckFits(*backend_, total, "the values of a program");
}

absl::StatusOr<BufferView> BoundProgram::NewBuffer(ValueId value, std::unique_ptr<Buffer>* buffer) {
  ASSIGN_OR_RETURN(*buffer, backend_->Allocate(graph().type(value).bytes()));
  return BufferView{buffer->get(), 0};
}

absl::Status BoundProgram::Bind() {
  for (const GraphInput& input : graph().inputs()) {
    ASSIGN_OR_RETURN(const BufferView view, NewBuffer(input.value, &inputs_[input.name]));
    RETURN_IF_ERROR(program_->BindInput(input.name, view));
  }
  ASSIGN_OR_RETURN(arena_, backend_->Allocate(program_->memory().arena));
  return program_->BindArena({arena_.get(), 0});
}

absl::Status BoundProgram::BindOutputs() {
  for (const GraphOutput& output : graph().outputs()) {
    if (output.into != kNoValue) continue;
    ASSIGN_OR_RETURN(const BufferView view, NewBuffer(output.value, &outputs_[output.name]));
    RETURN_IF_ERROR(program_->BindOutput(output.name, view));
  }
  return absl::OkStatus();
}

absl::Status BoundProgram::BindSharedOutputs() {
  size_t largest = 0;
  for (const GraphOutput& output : graph().outputs()) largest = std::max(largest, graph().type(output.value).bytes());
  ASSIGN_OR_RETURN(shared_output_, backend_->Allocate(largest));
  for (const GraphOutput& output : graph().outputs()) {
    if (output.into == kNoValue) RETURN_IF_ERROR(program_->BindOutput(output.name, {shared_output_.get(), 0}));
  }
  return absl::OkStatus();
}

absl::Status BoundProgram::Set(std::string_view input, const HostTensor& value) {
  const GraphInput* found = graph().FindInput(input);
  if (found == nullptr) return Invalid("there is no input '", input, "'");
  const Type& type = graph().type(found->value);
  if (!(type == value.type()))
    return Invalid("input '", input, "' is ", ToString(type), ", got ", ToString(value.type()));
  return inputs_.find(input)->second->Write(0, value.bytes());
}

absl::Status BoundProgram::Run() {
  RETURN_IF_ERROR(program_->Run());
  return backend_->Synchronize();
}

absl::StatusOr<HostTensor> BoundProgram::Get(std::string_view name) const {
  const GraphOutput* output = graph().FindOutput(name);
  if (output != nullptr && output->into != kNoValue) name = graph().inputs()[graph().value(output->into).index].name;
  const auto& buffers = output != nullptr && output->into == kNoValue ? outputs_ : inputs_;
  const auto it = buffers.find(name);
  if (it == buffers.end()) return Invalid("there is no output and no input '", name, "'");
  HostTensor value(graph().type(output != nullptr ? output->value : graph().FindInput(name)->value));
  RETURN_IF_ERROR(it->second->Read(0, value.mutable_bytes()));
  return value;
}

}  // namespace onnxtrain
