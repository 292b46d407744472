#include "backends/torch/torch_backend.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include "backends/bindings.h"
#include "backends/memory_plan.h"
#include "backends/output_notices.h"
#include "backends/torch/batches.h"
#include "backends/torch/compat.h"
#include "backends/torch/cuda.h"
#include "backends/torch/fuse/fuse_graph.h"
#include "backends/torch/guard.h"
#include "backends/torch/kernel.h"
#include "backends/torch/kernels/fused.h"
#include "backends/torch/tensor.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"

namespace onnxtrain::aten {
namespace {

class PeakReporter : public c10::MemoryReportingInfoBase {
 public:
  explicit PeakReporter(c10::Device device) : device_(device) {}

  void reportMemoryUsage(void* ptr, int64_t alloc_size, ReportedBytes total_allocated, ReportedBytes total_reserved,
                         c10::Device device) override {
    if (device.type() != device_.type()) return;
    live_ += alloc_size;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  c10::Device device_;
  int64_t live_ = 0, peak_ = 0;
};

// Returns the peak bytes on the device that `run` allocates on this thread.
size_t PeakScratch(c10::Device device, const std::function<void()>& run) {
  auto reporter = std::make_shared<PeakReporter>(device);
  {
    c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, reporter);
    run();
  }
  return static_cast<size_t>(reporter->peak());
}

struct Step {
  std::string where;  // for messages
  int32_t node = -1;  // -1: a copy at the end of the run
  Copy copy = {};
  Run run = {};                                            // empty: no operation
  std::optional<std::vector<const void*>> addresses = {};  // addresses for which `run` was prepared; nullopt: none
};

// Steps that one launch of a generated kernel computes. The first step makes the launch; the others have an empty
// `run`.
struct Batch {
  std::vector<Step*> steps;
  std::vector<BatchKernel> kernels;  // by step; all have the same source
};

class TorchProgram : public Program, public OutputRanges {
 public:
  TorchProgram(const Graph& graph, const CompileOptions& options, at::Device device, KernelCompiler* compiler);

  absl::Status UploadConstants();
  absl::Status MeasureScratch();

  const Graph& graph() const override { return graph_; }
  MemoryUse memory() const override { return memory_; }
  const MemoryPlan* plan() const override { return &plan_; }
  absl::Status BindInput(std::string_view name, BufferView view) override;
  absl::Status BindOutput(std::string_view name, BufferView view) override;
  absl::Status BindArena(BufferView view) override;
  absl::Status BindGroup(std::string_view name, Collectives* ranks) override;
  bool NotifyWhenComplete(std::span<const std::vector<size_t>> groups, OutputListener* listener) override;
  std::vector<OutputRange> TouchedRanges() const override { return PlanOutputRanges(graph_, plan_); }
  void SetInterruption(Interruption where) override;
  absl::Status Run() override;
  std::span<const double> NodeSeconds() const override { return seconds_; }
  void RecordNodes(std::vector<NodeRun>* runs) override { recorded_ = runs; }
  absl::StatusOr<HostTensor> Fetch(ValueId value) const override;

 private:
  bool timed() const { return !seconds_.empty() || recorded_ != nullptr; }
  absl::Status Refresh();
  void* At(const Place& place) const;
  std::vector<const void*> GetAddresses(const Step& step) const;
  absl::Status Prepare(Step& step);
  Args MakeArgs(const Node& node) const;
  aten::Run PrepareNode(const Node& node) const;
  std::vector<Batch> FindBatches();
  void CompileGenerated(const std::vector<Step*>& steps, const std::vector<Batch>& batches);
  absl::Status PrepareBatches(const std::vector<Batch>& batches);
  absl::Status BindZeros(std::vector<std::unique_ptr<Buffer>>* buffers);
  void Unbind();
  void RunSteps(size_t* at);
  void RunStep(const Step& step);
  void RunTimed(const Step& step);

  const Graph graph_;
  const at::Device device_;
  KernelCompiler* const compiler_;
  const bool keep_values_;
  MemoryPlan plan_;
  MemoryUse memory_;
  std::vector<Step> steps_;
  std::vector<std::vector<size_t>> independent_;  // FindIndependentRuns of generated kernels
  size_t interruptible_steps_ = 0;
  std::map<ValueId, at::Tensor> constants_;
  Bindings bindings_;
  RankGroups groups_;
  std::vector<OutputNotice> notices_;
  OutputListener* listener_ = nullptr;  // null: no notices
  std::vector<double> seconds_;         // by node, summed over runs; empty unless timed
  std::vector<NodeRun>* recorded_ = nullptr;
  std::vector<at::Tensor> views_;  // by value id; undefined if the value has no place
  bool measuring_ = false;         // MeasureScratch runs, without bound groups of ranks
  bool stale_ = true;              // something was bound after the kernels were prepared
  Replay replay_;
};

TorchProgram::TorchProgram(const Graph& graph, const CompileOptions& options, at::Device device,
                           KernelCompiler* compiler)
    : graph_(graph),
      device_(device),
      compiler_(compiler),
      keep_values_(options.keep_values),
      bindings_(graph_, plan_),
      // Programs with collectives of several ranks wait on the host for other ranks, which cannot be recorded.
      replay_(std::ranges::any_of(graph.nodes(), NeedsRanks) ? nullptr : FindRecorder(device)) {
  plan_ = PlanMemory(graph_, {.alignment = device.is_cpu() ? size_t{64} : size_t{512}, .reuse = !keep_values_});
  memory_ = {.arena = plan_.arena_bytes, .lower_bound = plan_.lower_bound, .scratch = 0};
  views_.resize(graph_.values().size());
  if (options.time_nodes) seconds_.resize(graph_.nodes().size());
  for (int32_t n : plan_.order) steps_.push_back({.where = NodeTag(graph_.nodes()[n]), .node = n});
  if (compiler != nullptr) {
    independent_ =
        FindIndependentRuns(graph_, plan_, plan_.order, [](const Node& node) { return node.op == kFusedOp; });
  }
  for (const Copy& copy : plan_.copies) steps_.push_back({.where = "[outputs] ", .copy = copy});
}

absl::Status TorchProgram::UploadConstants() {
  const DeviceScope scope(device_);
  for (const Node& node : graph_.nodes()) {
    if (!IsConstant(node)) continue;
    const HostTensor& value = *node.attrs.Tensor("value");
    RETURN_IF_ERROR(CatchTorchErrors(NodeTag(node), [&] { constants_[node.outputs[0]] = Upload(value, device_); }));
  }
  return absl::OkStatus();
}

absl::Status TorchProgram::BindInput(std::string_view name, BufferView view) {
  stale_ = true;
  return bindings_.BindInput(name, view);
}

absl::Status TorchProgram::BindOutput(std::string_view name, BufferView view) {
  stale_ = true;
  return bindings_.BindOutput(name, view);
}

absl::Status TorchProgram::BindArena(BufferView view) {
  stale_ = true;
  return bindings_.BindArena(view);
}

// Binds a group and discards the kernels that were prepared without it.
absl::Status TorchProgram::BindGroup(std::string_view name, Collectives* ranks) {
  stale_ = true;
  RETURN_IF_ERROR(groups_.Bind(graph_, name, ranks));
  for (Step& step : steps_) {
    if (step.node >= 0 && groups_.Find(graph_.nodes()[step.node]) != nullptr) step.addresses.reset();
  }
  return absl::OkStatus();
}

void* TorchProgram::At(const Place& place) const {
  return place.where == Place::Where::kConstant ? constants_.at(place.index).data_ptr() : bindings_.At(place);
}

std::vector<const void*> TorchProgram::GetAddresses(const Step& step) const {
  if (step.node < 0) return {At(step.copy.from), At(step.copy.to)};
  const Node& node = graph_.nodes()[step.node];
  std::vector<const void*> addresses;
  for (ValueId v : node.inputs) addresses.push_back(v == kNoValue ? nullptr : At(plan_.places[v]));
  for (ValueId v : node.outputs) addresses.push_back(At(plan_.places[v]));
  return addresses;
}

Args TorchProgram::MakeArgs(const Node& node) const {
  Args args{graph_, node, device_, {}, {}, compiler_};
  for (ValueId v : node.inputs) args.in.push_back(v == kNoValue ? at::Tensor() : views_[v]);
  for (ValueId v : node.outputs) args.out.push_back(views_[v]);
  args.ranks = groups_.Find(node);
  if (FindOp(node.op)->elementwise) AlignRanks(args);
  return args;
}

aten::Run TorchProgram::PrepareNode(const Node& node) const {
  const Args args = MakeArgs(node);
  const Kernel* kernel = AllKernels().Find(node.op);
  return kernel == nullptr ? PrepareHostKernel(args) : kernel->prepare(args);
}

// Groups the independent generated kernels by source. Sources depend on the alignment of the bound addresses, so the
// batches may change when something is rebound.
std::vector<Batch> TorchProgram::FindBatches() {
  std::vector<Batch> batches;
  for (const std::vector<size_t>& run : independent_) {
    std::map<std::string, Batch> by_source;
    for (size_t s : run) {
      absl::StatusOr<BatchKernel> kernel = GenerateFusedBatch(MakeArgs(graph_.nodes()[steps_[s].node]));
      if (!kernel.ok()) continue;
      Batch& batch = by_source[kernel->kernel.source];
      batch.steps.push_back(&steps_[s]);
      batch.kernels.push_back(*std::move(kernel));
    }
    for (auto& [source, batch] : by_source)
      if (batch.steps.size() > 1) batches.push_back(std::move(batch));
  }
  return batches;
}

// Compiles the generated kernels in parallel before they are prepared one by one. Errors are ignored here, because
// preparing reports them.
void TorchProgram::CompileGenerated(const std::vector<Step*>& steps, const std::vector<Batch>& batches) {
  if (compiler_ == nullptr) return;
  std::vector<GeneratedKernel> kernels;
  for (const Batch& batch : batches) kernels.push_back(batch.kernels[0].kernel);
  for (const Step* step : steps) {
    if (step->node < 0 || graph_.nodes()[step->node].op != kFusedOp) continue;
    absl::StatusOr<GeneratedKernel> kernel = GenerateFused(MakeArgs(graph_.nodes()[step->node]));
    if (kernel.ok()) kernels.push_back(*std::move(kernel));
  }
  compiler_->CompileAll(kernels).IgnoreError();
}

absl::Status TorchProgram::Prepare(Step& step) {
  return CatchTorchErrors(step.where, [&] {
    if (step.node >= 0) {
      step.run = PrepareNode(graph_.nodes()[step.node]);
    } else {
      const Type bytes{DType::kUInt8, {static_cast<int64_t>(step.copy.bytes)}};
      step.run = [to = MakeView(At(step.copy.to), bytes, device_),
                  from = MakeView(At(step.copy.from), bytes, device_)] { to.copy_(from); };
    }
  });
}

// Prepares one launch per batch. Batched steps store no addresses, so that the next Refresh prepares them again.
absl::Status TorchProgram::PrepareBatches(const std::vector<Batch>& batches) {
  for (const Batch& batch : batches) {
    std::vector<Args> nodes;
    for (Step* step : batch.steps) {
      nodes.push_back(MakeArgs(graph_.nodes()[step->node]));
      step->run = nullptr;
      step->addresses.reset();
    }
    Step& first = *batch.steps.front();
    RETURN_IF_ERROR(CatchTorchErrors(first.where, [&] { first.run = PrepareBatch(nodes, batch.kernels); }));
  }
  return absl::OkStatus();
}

// Recreates all views, and prepares the kernels whose addresses have changed.
absl::Status TorchProgram::Refresh() {
  RETURN_IF_ERROR(bindings_.CheckAllBound());
  replay_.Reset();
  RETURN_IF_ERROR(CatchTorchErrors("", [&] {
    for (size_t v = 0; v < views_.size(); ++v) {
      if (plan_.places[v].where != Place::Where::kNone)
        views_[v] = MakeView(At(plan_.places[v]), graph_.type(v), device_);
    }
  }));
  const std::vector<Batch> batches = FindBatches();
  std::set<const Step*> batched;
  for (const Batch& batch : batches) batched.insert(batch.steps.begin(), batch.steps.end());
  std::vector<Step*> moved;
  for (Step& step : steps_) {
    if (!batched.contains(&step) && step.addresses != GetAddresses(step)) moved.push_back(&step);
  }
  CompileGenerated(moved, batches);
  RETURN_IF_ERROR(PrepareBatches(batches));
  for (Step* step : moved) {
    RETURN_IF_ERROR(Prepare(*step));
    step->addresses = GetAddresses(*step);
  }
  stale_ = false;
  return absl::OkStatus();
}

void TorchProgram::SetInterruption(Interruption where) {
  const auto updates = [&](const Step& step) {
    if (step.node < 0) return true;
    const auto& outputs = graph_.nodes()[step.node].outputs;
    return std::ranges::any_of(outputs, [&](ValueId v) { return plan_.places[v].where == Place::Where::kInput; });
  };
  interruptible_steps_ = !device_.is_cpu() || where == Interruption::kNever ? 0 : steps_.size();
  if (interruptible_steps_ > 0 && where == Interruption::kBeforeUpdate)
    interruptible_steps_ = std::ranges::find_if(steps_, updates) - steps_.begin();
}

absl::Status TorchProgram::Run() {
  const DeviceScope scope(device_);
  if (stale_) {
    if (!measuring_) RETURN_IF_ERROR(groups_.CheckAllBound(graph_));
    RETURN_IF_ERROR(Refresh());
  }
  size_t at = steps_.size();
  // One guard serves the whole run; `at` locates the failed step.
  absl::Status status = CatchTorchErrors("", [&] { timed() ? RunSteps(&at) : replay_.Run([&] { RunSteps(&at); }); });
  if (at == steps_.size()) return status;
  return status.ok() ? CheckCancelled() : Annotate(status, steps_[at].where);
}

bool TorchProgram::NotifyWhenComplete(std::span<const std::vector<size_t>> groups, OutputListener* listener) {
  listener_ = device_.is_cpu() ? listener : nullptr;
  notices_ = listener_ != nullptr ? PlanNotices(graph_, plan_, groups) : std::vector<OutputNotice>();
  return device_.is_cpu();
}

// Runs all steps. *at is the current step; after an interruption, the first step that did not run.
void TorchProgram::RunSteps(size_t* at) {
  auto notice = notices_.begin();
  for (*at = 0; *at < steps_.size(); ++*at) {
    if (*at < interruptible_steps_ && !CheckCancelled().ok()) return;
    for (; notice != notices_.end() && notice->nodes <= *at; ++notice) listener_->OnComplete(notice->group);
    RunStep(steps_[*at]);
  }
  for (; notice != notices_.end(); ++notice) listener_->OnComplete(notice->group);
}

void TorchProgram::RunStep(const Step& step) {
  if (!step.run) return;
  timed() && step.node >= 0 ? RunTimed(step) : step.run();
}

void TorchProgram::RunTimed(const Step& step) {
  SynchronizeDevice(device_);
  const auto begin = std::chrono::steady_clock::now();
  step.run();
  SynchronizeDevice(device_);
  const auto end = std::chrono::steady_clock::now();
  if (!seconds_.empty()) seconds_[step.node] += std::chrono::duration<double>(end - begin).count();
  if (recorded_ != nullptr) recorded_->push_back({step.node, begin, end});
}

absl::StatusOr<HostTensor> TorchProgram::Fetch(ValueId value) const {
  if (!keep_values_) return absl::FailedPreconditionError("the program was compiled without keep_values");
  if (!views_[value].defined()) return absl::NotFoundError(StrCat("value ", value, " is not computed"));
  HostTensor result;
  const DeviceScope scope(device_);
  RETURN_IF_ERROR(CatchTorchErrors("", [&] { result = Download(views_[value], graph_.type(value)); }));
  return result;
}

// Binds all inputs to one buffer of zeros and all outputs to another, so that the measurement needs little memory
// beyond the arena.
absl::Status TorchProgram::BindZeros(std::vector<std::unique_ptr<Buffer>>* buffers) {
  size_t in = 0, out = 0;
  for (const GraphInput& input : graph_.inputs()) in = std::max(in, graph_.type(input.value).bytes());
  for (const GraphOutput& output : graph_.outputs()) out = std::max(out, graph_.type(output.value).bytes());
  for (size_t bytes : {in, out, plan_.arena_bytes}) {
    ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer, AllocateBuffer(bytes, device_));
    buffers->push_back(std::move(buffer));
  }
  for (const GraphInput& input : graph_.inputs()) RETURN_IF_ERROR(BindInput(input.name, {(*buffers)[0].get(), 0}));
  for (const GraphOutput& output : graph_.outputs()) {
    if (output.into == kNoValue) RETURN_IF_ERROR(BindOutput(output.name, {(*buffers)[1].get(), 0}));
  }
  return BindArena({(*buffers)[2].get(), 0});
}

void TorchProgram::Unbind() {
  bindings_ = Bindings(graph_, plan_);
  views_.assign(views_.size(), {});
  for (Step& step : steps_) {
    step.run = nullptr;
    step.addresses.reset();
  }
  stale_ = true;
}

// Lets cuDNN time its algorithms for the convolutions of `run`; later runs on this thread use the fastest ones.
void ChooseConvolutions(const std::function<void()>& run) {
  at::globalContext().setBenchmarkCuDNN(true);
  run();
  at::globalContext().setBenchmarkCuDNN(false);
}

// Sets the scratch bytes of MemoryUse from a run over zeros. A failed run is not an error, because zeros are invalid
// for some kernels (integer division).
absl::Status TorchProgram::MeasureScratch() {
  const DeviceScope scope(device_);
  std::vector<std::unique_ptr<Buffer>> buffers;
  RETURN_IF_ERROR(BindZeros(&buffers));
  RETURN_IF_ERROR(Refresh());
  measuring_ = true;
  if (!device_.is_cpu()) ChooseConvolutions([this] { Run().IgnoreError(); });
  memory_.scratch = PeakScratch(device_, [this] { Run().IgnoreError(); });
  SynchronizeDevice(device_);
  measuring_ = false;
  std::fill(seconds_.begin(), seconds_.end(), 0);
  Unbind();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> MakeProgram(const Graph& graph, const CompileOptions& options,
                                                     c10::Device device, KernelCompiler* compiler) {
  auto program = std::make_unique<TorchProgram>(graph, options, device, compiler);
  RETURN_IF_ERROR(program->UploadConstants());
  RETURN_IF_ERROR(program->MeasureScratch());
  return program;
}

}  // namespace onnxtrain::aten
