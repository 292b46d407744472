#include "backends/torch/program.h"

#include <algorithm>
#include <chrono>
#include <map>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>

#include "backends/memory_plan.h"
#include "backends/torch/guard.h"
#include "backends/torch/kernel.h"
#include "backends/torch/scratch.h"
#include "backends/torch/tensor.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain::aten {
namespace {

// What stands around every use of ATen.
struct Scope {
  explicit Scope(at::Device device) : device_guard(device) {}
  c10::InferenceMode inference;
  c10::OptionalDeviceGuard device_guard;
};

// The address of a graph input, output or the arena, and whether it changed since the kernels were prepared.
struct Binding {
  bool bound = false;
  void* address = nullptr;  // null for memory of no bytes
  bool changed = false;
};

struct Step {
  std::string where;  // for messages
  int32_t node = -1;  // -1: a copy at the end of the run
  Copy copy = {};
  Run run;  // empty: nothing to do
};

class TorchProgram : public Program {
 public:
  TorchProgram(const Graph& graph, const CompileOptions& options, at::Device device);

  absl::Status UploadConstants();
  absl::Status MeasureScratch();

  const Graph& graph() const override { return graph_; }
  MemoryUse memory() const override { return memory_; }
  absl::Status BindInput(std::string_view name, BufferView view) override;
  absl::Status BindOutput(std::string_view name, BufferView view) override;
  absl::Status BindArena(BufferView view) override;
  absl::Status Run() override;
  std::span<const double> NodeSeconds() const override { return seconds_; }
  absl::StatusOr<HostTensor> Fetch(ValueId value) const override;

 private:
  absl::Status Bind(Binding& binding, BufferView view, size_t bytes, std::string_view what);
  absl::Status CheckBound() const;
  absl::Status Refresh();
  const Binding* FindBinding(const Place& place) const;
  const Binding& OutputBinding(int32_t output) const;
  at::Tensor ViewAt(const Place& place, const Type& type) const;
  bool Changed(const Place& place) const;
  absl::Status Prepare(Step& step);
  aten::Run PrepareNode(const Node& node) const;
  absl::Status BindZeros(std::vector<std::unique_ptr<Buffer>>* buffers);
  void Unbind();
  void RunTimed(const Step& step);

  const Graph graph_;
  const at::Device device_;
  const bool keep_values_;
  MemoryPlan plan_;
  MemoryUse memory_;
  std::vector<Step> steps_;
  std::map<ValueId, at::Tensor> constants_;
  std::vector<int32_t> input_of_;  // by value id: index of the graph input, or -1
  std::vector<Binding> inputs_, outputs_;
  Binding arena_;
  std::vector<double> seconds_;    // by node, summed over runs; empty unless timed
  std::vector<at::Tensor> views_;  // by value id; undefined where the value has no place
  bool stale_ = true, never_prepared_ = true;
};

TorchProgram::TorchProgram(const Graph& graph, const CompileOptions& options, at::Device device)
    : graph_(graph), device_(device), keep_values_(options.keep_values) {
  plan_ = PlanMemory(graph_, {.alignment = device.is_cpu() ? size_t{64} : size_t{512}, .reuse = !keep_values_});
  memory_ = {.arena = plan_.arena_bytes, .lower_bound = plan_.lower_bound, .scratch = 0};
  input_of_.assign(graph_.values().size(), -1);
  for (size_t i = 0; i < graph_.inputs().size(); ++i) input_of_[graph_.inputs()[i].value] = static_cast<int32_t>(i);
  inputs_.resize(graph_.inputs().size());
  outputs_.resize(graph_.outputs().size());
  views_.resize(graph_.values().size());
  if (options.time_nodes) seconds_.resize(graph_.nodes().size());
  for (int32_t n : plan_.order) steps_.push_back({.where = NodeTag(graph_.nodes()[n]), .node = n});
  for (const Copy& copy : plan_.copies) steps_.push_back({.where = "[outputs] ", .copy = copy});
}

absl::Status TorchProgram::UploadConstants() {
  Scope scope(device_);
  for (const Node& node : graph_.nodes()) {
    if (node.op != "Constant") continue;
    const HostTensor& value = *node.attrs.Tensor("value");
    RETURN_IF_ERROR(CatchTorchErrors(NodeTag(node), [&] { constants_[node.outputs[0]] = Upload(value, device_); }));
  }
  return absl::OkStatus();
}

absl::Status TorchProgram::Bind(Binding& binding, BufferView view, size_t bytes, std::string_view what) {
  if (view.buffer == nullptr) return Invalid(what, ": no buffer");
  if (view.offset > view.buffer->size() || bytes > view.buffer->size() - view.offset) {
    return Invalid(what, ": expected ", bytes, " bytes at ", view.offset, ", got a buffer of ", view.buffer->size());
  }
  // Compared by address: a buffer that was bound before may be gone, and a new one may have taken its place.
  void* address = static_cast<std::byte*>(view.buffer->data()) + view.offset;
  if (!binding.bound || binding.address != address) {
    binding = {true, address, true};
    stale_ = true;
  }
  return absl::OkStatus();
}

absl::Status TorchProgram::BindInput(std::string_view name, BufferView view) {
  const GraphInput* input = graph_.FindInput(name);
  if (input == nullptr) return Invalid("no input named '", name, "'");
  return Bind(inputs_[input_of_[input->value]], view, graph_.type(input->value).bytes(), StrCat("input '", name, "'"));
}

absl::Status TorchProgram::BindOutput(std::string_view name, BufferView view) {
  const GraphOutput* output = graph_.FindOutput(name);
  if (output == nullptr) return Invalid("no output named '", name, "'");
  if (output->into != kNoValue) return Invalid("output '", name, "' lives where its input lives");
  return Bind(outputs_[output - graph_.outputs().data()], view, graph_.type(output->value).bytes(),
              StrCat("output '", name, "'"));
}

absl::Status TorchProgram::BindArena(BufferView view) {
  // Empty values may have no buffer.
  if (plan_.arena_bytes == 0 && view.buffer == nullptr) {
    if (!arena_.bound) arena_ = {true, nullptr, true};
    return absl::OkStatus();
  }
  return Bind(arena_, view, plan_.arena_bytes, "arena");
}

absl::Status TorchProgram::CheckBound() const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].bound) return Invalid("input '", graph_.inputs()[i].name, "' is not bound");
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!OutputBinding(i).bound) return Invalid("output '", graph_.outputs()[i].name, "' is not bound");
  }
  if (plan_.arena_bytes > 0 && !arena_.bound) return Invalid("the arena is not bound");
  return absl::OkStatus();
}

const Binding& TorchProgram::OutputBinding(int32_t output) const {
  const ValueId into = graph_.outputs()[output].into;
  return into == kNoValue ? outputs_[output] : inputs_[input_of_[into]];
}

// Returns null for constants and unused values.
const Binding* TorchProgram::FindBinding(const Place& place) const {
  switch (place.where) {
    case Place::Where::kArena:
      return &arena_;
    case Place::Where::kInput:
      return &inputs_[place.index];
    case Place::Where::kOutput:
      return &OutputBinding(place.index);
    case Place::Where::kConstant:
    case Place::Where::kNone:
      return nullptr;
  }
  return nullptr;
}

// Undefined where the place is none.
at::Tensor TorchProgram::ViewAt(const Place& place, const Type& type) const {
  void* data = nullptr;
  if (place.where == Place::Where::kConstant) {
    data = constants_.at(place.index).data_ptr();
  } else if (const Binding* binding = FindBinding(place)) {
    data = static_cast<std::byte*>(binding->address) + (place.where == Place::Where::kArena ? place.offset : 0);
  } else {
    return {};
  }
  return MakeView(data, type, device_);
}

bool TorchProgram::Changed(const Place& place) const {
  const Binding* binding = FindBinding(place);
  return binding != nullptr && binding->changed;
}

aten::Run TorchProgram::PrepareNode(const Node& node) const {
  Args args{graph_, node, device_, {}, {}};
  for (ValueId v : node.inputs) args.in.push_back(v == kNoValue ? at::Tensor() : views_[v]);
  for (ValueId v : node.outputs) args.out.push_back(views_[v]);
  if (FindOp(node.op)->elementwise) AlignRanks(args);
  return AllKernels().Find(node.op)->prepare(args);
}

absl::Status TorchProgram::Prepare(Step& step) {
  return CatchTorchErrors(step.where, [&] {
    if (step.node >= 0) {
      step.run = PrepareNode(graph_.nodes()[step.node]);
    } else {
      const Type bytes{DType::kUInt8, {static_cast<int64_t>(step.copy.bytes)}};
      step.run = [to = ViewAt(step.copy.to, bytes), from = ViewAt(step.copy.from, bytes)] { to.copy_(from); };
    }
  });
}

// Recreates the views of rebound buffers and prepares their kernels again.
absl::Status TorchProgram::Refresh() {
  RETURN_IF_ERROR(CheckBound());
  std::vector<bool> changed(views_.size());
  for (size_t v = 0; v < views_.size(); ++v) {
    const Place& place = plan_.places[v];
    changed[v] = Changed(place) || (place.where == Place::Where::kConstant && !views_[v].defined());
    if (changed[v]) views_[v] = ViewAt(place, graph_.type(v));
  }
  auto touches = [&](const Step& step) {
    if (step.node < 0) return Changed(step.copy.from) || Changed(step.copy.to);
    const Node& node = graph_.nodes()[step.node];
    auto is_changed = [&](ValueId v) { return v != kNoValue && changed[v]; };
    return std::any_of(node.inputs.begin(), node.inputs.end(), is_changed) ||
           std::any_of(node.outputs.begin(), node.outputs.end(), is_changed);
  };
  for (Step& step : steps_) {
    if (never_prepared_ || touches(step)) RETURN_IF_ERROR(Prepare(step));
  }
  for (std::vector<Binding>* bindings : {&inputs_, &outputs_}) {
    for (Binding& binding : *bindings) binding.changed = false;
  }
  arena_.changed = false;
  never_prepared_ = stale_ = false;
  return absl::OkStatus();
}

absl::Status TorchProgram::Run() {
  Scope scope(device_);
  if (stale_) RETURN_IF_ERROR(Refresh());
  const Step* at = nullptr;
  // One guard for the whole run; the step says where it failed.
  absl::Status status = CatchTorchErrors("", [&] {
    for (const Step& step : steps_) {
      at = &step;
      if (!step.run) continue;
      seconds_.empty() || step.node < 0 ? step.run() : RunTimed(step);
    }
  });
  return status.ok() ? status : Annotate(status, at->where);
}

void TorchProgram::RunTimed(const Step& step) {
  SynchronizeDevice(device_);
  const auto begin = std::chrono::steady_clock::now();
  step.run();
  SynchronizeDevice(device_);
  seconds_[step.node] += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

absl::StatusOr<HostTensor> TorchProgram::Fetch(ValueId value) const {
  if (!keep_values_) return absl::FailedPreconditionError("the program was compiled without keep_values");
  if (!views_[value].defined()) return absl::NotFoundError(StrCat("value ", value, " is not computed"));
  HostTensor result;
  Scope scope(device_);
  RETURN_IF_ERROR(CatchTorchErrors("", [&] { result = Download(views_[value], graph_.type(value)); }));
  return result;
}

// Inputs share one buffer of zeros and outputs another, so that the measurement needs little memory beyond the arena.
absl::Status TorchProgram::BindZeros(std::vector<std::unique_ptr<Buffer>>* buffers) {
  size_t in = 0, out = 0;
  for (const GraphInput& input : graph_.inputs()) in = std::max(in, graph_.type(input.value).bytes());
  for (const GraphOutput& output : graph_.outputs()) out = std::max(out, graph_.type(output.value).bytes());
  for (size_t bytes : {in, out, plan_.arena_bytes}) {
    ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, AllocateBuffer(bytes, device_));
    buffers->push_back(std::move(buffer));
  }
  for (Binding& binding : inputs_) binding = {true, (*buffers)[0]->data(), true};
  for (Binding& binding : outputs_) binding = {true, (*buffers)[1]->data(), true};
  arena_ = {true, (*buffers)[2]->data(), true};
  return absl::OkStatus();
}

void TorchProgram::Unbind() {
  inputs_.assign(inputs_.size(), {});
  outputs_.assign(outputs_.size(), {});
  arena_ = {};
  views_.assign(views_.size(), {});
  for (Step& step : steps_) step.run = nullptr;
  never_prepared_ = stale_ = true;
}

// Zeros are invalid for some kernels (integer division), so a failed run is no error.
absl::Status TorchProgram::MeasureScratch() {
  Scope scope(device_);
  std::vector<std::unique_ptr<Buffer>> buffers;
  RETURN_IF_ERROR(BindZeros(&buffers));
  RETURN_IF_ERROR(Refresh());
  memory_.scratch = PeakScratch(device_, [this] { Run().IgnoreError(); });
  SynchronizeDevice(device_);
  std::fill(seconds_.begin(), seconds_.end(), 0);
  Unbind();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> MakeProgram(const Graph& graph, const CompileOptions& options,
                                                     c10::Device device) {
  auto program = std::make_unique<TorchProgram>(graph, options, device);
  RETURN_IF_ERROR(program->UploadConstants());
  RETURN_IF_ERROR(program->MeasureScratch());
  return program;
}

}  // namespace onnxtrain::aten
