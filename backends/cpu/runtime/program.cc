#include "backends/cpu/runtime/program.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>

#include "backends/bindings.h"
#include "backends/cpu/lower/passes.h"
#include "backends/cpu/runtime/dnnl_call.h"
#include "backends/cpu/runtime/kernel.h"
#include "backends/cpu/runtime/offload_area.h"
#include "backends/cpu/runtime/parallel.h"
#include "backends/dataflow.h"
#include "backends/memory_plan.h"
#include "backends/output_notices.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/scratch_file.h"
#include "frontend/base/status.h"

namespace onnxtrain::cpu {
namespace {

// glibc's thread cache has kLists lists of at most kBlocks blocks each; their sizes are kStep bytes apart.
constexpr size_t kLists = 64, kStep = 16, kBlocks = 7;

constexpr size_t kHeader = sizeof(size_t);  // bytes of a block that its header takes

void FillOwnFreeLists() {
  for (size_t list = 1; list <= kLists; ++list) {
    std::array<std::unique_ptr<std::byte[]>, kBlocks> blocks;
    for (auto& block : blocks) block.reset(new std::byte[(list + 1) * kStep - kHeader]);
  }
}

// Fills the lists of small free blocks that glibc keeps for the calling thread and those of the thread pool. Blocks in
// these lists are not merged with their neighbors.
//
// oneDNN's products for AVX2 allocate megabytes at aligned addresses and free them when they end. If a list is not
// full, it takes the remainder before such an address; the hole is then smaller than the next product's request, and
// the heap grows by a product's memory, up to seven times for each size of small blocks. Compiling, and code generation
// for the first product of a kind, take blocks from the lists.
void FillFreeLists() {
#pragma omp parallel
  FillOwnFreeLists();
}

using Where = Place::Where;

using Kernels = std::vector<std::shared_ptr<const Kernel>>;  // by node; null for dead nodes

absl::StatusOr<Kernels> PrepareNodes(const Graph& graph, KernelCache& cache) {
  const std::vector<bool> running = FindLiveNodes(graph);
  Kernels kernels(graph.nodes().size());
  for (size_t n = 0; n < kernels.size(); ++n) {
    if (!running[n]) continue;
    RETURN_IF_ERROR(CheckCancelled());
    ASSIGN_OR_RETURN(kernels[n], cache.Get(graph, graph.nodes()[n]));
  }
  return kernels;
}

std::vector<size_t> GetWorkspaces(const Kernels& kernels) {
  std::vector<size_t> bytes;
  for (const auto& kernel : kernels) bytes.push_back(kernel == nullptr ? 0 : kernel->workspace);
  return bytes;
}

class CpuProgram : public Program, public OutputRanges {
 public:
  CpuProgram(Graph graph, const CompileOptions& options, int threads)
      : graph_(std::move(graph)), options_(options), threads_(threads), bindings_(graph_, plan_) {}

  absl::Status Compile(KernelCache& cache) {
    SetNumThreads(threads_);
    kernel_cache_ = cache.Hold();
    ASSIGN_OR_RETURN(kernels_, PrepareNodes(graph_, cache));
    plan_ = PlanMemory(graph_, {.reuse = !options_.keep_values,
                                .workspace_bytes = GetWorkspaces(kernels_),
                                .offload = {.memory_limit = options_.memory_limit}});
    input_pointers_.resize(graph_.inputs().size());
    MakeSteps();
    if (options_.time_nodes) seconds_.resize(graph_.nodes().size());
    return absl::OkStatus();
  }

  const Graph& graph() const override { return graph_; }
  MemoryUse memory() const override {
    MemoryUse use{.arena = plan_.memory_bytes(), .lower_bound = plan_.lower_bound};
    for (const Offload& value : plan_.offloads) use.offloaded += value.bytes;
    return use;
  }
  const MemoryPlan* plan() const override { return &plan_; }

  absl::Status BindInput(std::string_view name, BufferView view) override {
    resolved_ = false;
    return bindings_.BindInput(name, view);
  }

  bool ReadInPlace(size_t input, const std::byte* data) override {
    const bool in_place = reinterpret_cast<uintptr_t>(data) % kFeedAlignment == 0;
    const bool moved = bindings_.MoveInput(input, in_place ? const_cast<std::byte*>(data) : nullptr);
    if (!moved || !resolved_) return in_place;
    for (size_t pointer : input_pointers_[input])
      pointers_[pointer] = At({.where = Where::kInput, .index = static_cast<int32_t>(input)});
    ResolveCopies();
    return in_place;
  }

  absl::Status BindOutput(std::string_view name, BufferView view) override {
    resolved_ = false;
    return bindings_.BindOutput(name, view);
  }

  absl::Status BindArena(BufferView view) override {
    resolved_ = false;
    RETURN_IF_ERROR(bindings_.BindArena(view));
    const auto& nodes = graph_.nodes();
    if (std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) { return ReordersOperands(node); }))
      AdviseHugePages(bindings_.arena(), plan_.arena_bytes);
    return absl::OkStatus();
  }

  absl::Status BindGroup(std::string_view name, Collectives* ranks) override {
    resolved_ = false;
    return groups_.Bind(graph_, name, ranks);
  }

  bool NotifyWhenComplete(std::span<const std::vector<size_t>> groups, OutputListener* listener) override {
    listener_ = listener;
    notices_.clear();
    if (listener == nullptr) return true;
    notices_ = PlanNotices(graph_, plan_, groups);
    for (OutputNotice& notice : notices_) {
      if (notice.nodes != kAfterCopies) notice.nodes = steps_before_[notice.nodes];
    }
    return true;
  }

  std::vector<OutputRange> TouchedRanges() const override { return PlanOutputRanges(graph_, plan_); }

  void SetInterruption(Interruption where) override {
    const auto updates = [&](const Step& step) {
      const auto& outputs = graph_.nodes()[step.node].outputs;
      return std::ranges::any_of(outputs, [&](ValueId v) { return plan_.places[v].where == Where::kInput; });
    };
    interruptible_steps_ = where == Interruption::kNever ? 0 : steps_.size();
    if (where == Interruption::kBeforeUpdate)
      interruptible_steps_ = std::ranges::find_if(steps_, updates) - steps_.begin();
  }

  absl::Status Run() override {
    SetNumThreads(threads_);
    if (!resolved_) RETURN_IF_ERROR(Resolve());
    if (!has_run_) FillFreeLists();
    Progress run{.notice = notices_.begin()};
    // The captures must be small enough for std::function not to allocate.
    const absl::Status status = CatchDnnlErrors([this, &run] {
      if (!RunInterruptible(&run.at)) return;
      for (; run.notice != notices_.end() && run.notice->nodes != kAfterCopies; ++run.notice) {
        RunSteps(run.notice->nodes, &run.at);
        listener_->OnComplete(run.notice->group);
      }
      RunSteps(steps_.size(), &run.at);
    });
    has_run_ = true;
    products_.clear();
    if (status.ok() && run.at < steps_.size()) return CheckCancelled();
    if (!status.ok()) return Annotate(status, NodeTag(graph_.nodes()[steps_[run.at].node]));
    for (const ResolvedCopy& copy : copies_) std::memcpy(copy.to, copy.from, copy.bytes);
    if (offload_ != nullptr) offload_->DropAll();
    for (; run.notice != notices_.end(); ++run.notice) listener_->OnComplete(run.notice->group);
    return absl::OkStatus();
  }

  std::span<const double> NodeSeconds() const override { return seconds_; }
  void RecordNodes(std::vector<NodeRun>* runs) override { recorded_ = runs; }

  absl::StatusOr<HostTensor> Fetch(ValueId value) const override {
    return FetchValue(graph_, options_, value,
                      {.find = [this](ValueId v) { return resolved_ ? At(plan_.places[v]) : nullptr; },
                       .copy =
                           [](std::byte* to, const std::byte* from, size_t bytes) {
                             std::memcpy(to, from, bytes);
                             return absl::OkStatus();
                           }});
  }

 private:
  // Runs a node, or moves an offloaded value beside it, of which the node then is the name.
  struct Step {
    RunKernel run;
    Args args;
    int32_t node;
    size_t first_pointer;  // in pointers_: the inputs, then the outputs
    bool is_move = false;  // needs no arguments
  };
  struct Progress {
    size_t at = 0;                                     // the step that runs
    std::vector<OutputNotice>::const_iterator notice;  // the next one
  };
  struct ResolvedCopy {
    std::byte* to;
    const std::byte* from;
    size_t bytes;
  };

  // Runs the interruptible steps. Returns false if the run was cancelled.
  bool RunInterruptible(size_t* at) {
    while (*at < interruptible_steps_) {
      if (!CheckCancelled().ok()) return false;
      RunSteps(*at + 1, at);
    }
    return true;
  }

  // Runs the steps [*at, end) and keeps *at at the current one. In the first run, refills the free lists after each
  // new product, whose code generation takes blocks from them.
  void RunSteps(size_t end, size_t* at) {
    if (has_run_) return RunKernels(end, at);
    while (*at < end) {
      const int32_t n = steps_[*at].node;
      RunKernels(*at + 1, at);
      const bool product = FindOp(graph_.nodes()[n].op)->flops != nullptr;
      if (product && products_.insert(kernels_[n].get()).second) FillFreeLists();
    }
  }

  void RunKernels(size_t end, size_t* at) {
    if (options_.time_nodes || recorded_ != nullptr) return RunTimed(end, at);
    for (; *at < end; ++*at) steps_[*at].run(steps_[*at].args);
  }

  void RunTimed(size_t end, size_t* at) {
    auto begin = std::chrono::steady_clock::now();
    for (; *at < end; ++*at) {
      steps_[*at].run(steps_[*at].args);
      const auto end = std::chrono::steady_clock::now();
      const int32_t node = steps_[*at].node;
      if (!seconds_.empty()) seconds_[node] += std::chrono::duration<double>(end - begin).count();
      if (recorded_ != nullptr) recorded_->push_back({node, begin, end});
      begin = end;
    }
  }

  // Returns true for row-major convolutions, which copy operands to blocked layouts.
  bool ReordersOperands(const Node& node) const {
    const OpRow* row = FindOp(node.op);
    return row->precision == Precision::kLow && row->layout.inputs != 0 && !IsChannelsLast(graph_, node);
  }

  // Returns true for a view whose input and output have the same place, which needs no step.
  bool IsNothing(int32_t n) const {
    const Node& node = graph_.nodes()[n];
    const OpRow* row = FindOp(node.op);
    return row->view && plan_.places[node.inputs[0]] == plan_.places[node.outputs[0]];
  }

  void MakeSteps() {
    const OffloadMoves moves = ListMoves();
    size_t pointers = 0;
    const auto add_pointer = [&](ValueId v) {
      if (v != kNoValue && plan_.places[v].where == Where::kInput)
        input_pointers_[plan_.places[v].index].push_back(pointers);
      ++pointers;
    };
    for (size_t i = 0; i < plan_.order.size(); ++i) {
      const int32_t n = plan_.order[i];
      steps_before_.push_back(steps_.size());
      AddMoves(moves.before[i], n);
      if (!IsNothing(n)) {
        const Node& node = graph_.nodes()[n];
        steps_.push_back({.run = kernels_[n]->run, .args = {}, .node = n, .first_pointer = pointers});
        for (ValueId v : node.inputs) add_pointer(v);
        for (ValueId v : node.outputs) add_pointer(v);
      }
      AddMoves(moves.after[i], n);
    }
    steps_before_.push_back(steps_.size());
    if (!plan_.order.empty()) AddMoves(moves.before.back(), plan_.order.back());
    pointers_.resize(pointers);
  }

  struct Move {
    void (OffloadArea::*run)(const Offload& value) const;
    const Offload* value;
  };
  using Moves = std::vector<Move>;
  struct OffloadMoves {
    std::vector<Moves> before, after;  // by index into the plan's order, with one for the final copies
  };

  OffloadMoves ListMoves() const {
    const size_t steps = plan_.order.size() + 1;
    OffloadMoves moves{std::vector<Moves>(steps), std::vector<Moves>(steps)};
    for (const Offload& value : plan_.offloads) {
      moves.after[value.store].push_back({&OffloadArea::Store, &value});
      moves.before[value.load].push_back({&OffloadArea::Load, &value});
      moves.after[value.last].push_back({&OffloadArea::Drop, &value});
    }
    return moves;
  }

  void AddMoves(const Moves& moves, int32_t node) {
    for (const Move& move : moves) {
      const auto run = [this, move](const Args&) { (offload_.get()->*move.run)(*move.value); };
      steps_.push_back({.run = run, .args = {}, .node = node, .first_pointer = 0, .is_move = true});
    }
  }

  std::byte* At(const Place& place) const {
    if (place.where == Where::kOffloaded) return offload_->data() + place.offset;
    if (place.where != Where::kConstant) return bindings_.At(place);
    return const_cast<std::byte*>(graph_.FindConstant(place.index)->bytes().data());
  }

  // Faults in inputs that are updated in place. Called by the first run, not at binding: a program that is only planned
  // has buffers without memory.
  void TouchUpdatedInputs() {
    for (const GraphOutput& output : graph_.outputs()) {
      if (output.into == kNoValue) continue;
      PrefaultPages(At(plan_.places[output.into]), graph_.type(output.into).bytes());
    }
  }

  absl::Status Resolve() {
    RETURN_IF_ERROR(bindings_.CheckAllBound());
    RETURN_IF_ERROR(groups_.CheckAllBound(graph_));
    if (offload_ == nullptr && plan_.offload_area > 0) {
      ASSIGN_OR_RETURN(offload_, OffloadArea::Create(plan_.offload_area, ScratchFolder()));
    }
    TouchUpdatedInputs();
    for (Step& step : steps_) {
      if (step.is_move) continue;
      const Node& node = graph_.nodes()[step.node];
      void** pointer = &pointers_[step.first_pointer];
      step.args = {.inputs = pointer,
                   .outputs = pointer + node.inputs.size(),
                   .workspace = bindings_.arena() + plan_.workspace_offset[step.node],
                   .ranks = groups_.Find(node)};
      for (ValueId v : node.inputs) *pointer++ = v == kNoValue ? nullptr : At(plan_.places[v]);
      for (ValueId v : node.outputs) *pointer++ = At(plan_.places[v]);
    }
    ResolveCopies();
    resolved_ = true;
    return absl::OkStatus();
  }

  void ResolveCopies() {
    copies_.clear();
    for (const Copy& copy : plan_.copies) copies_.push_back({At(copy.to), At(copy.from), copy.bytes});
  }

  Graph graph_;
  CompileOptions options_;
  int threads_;
  MemoryPlan plan_;
  Bindings bindings_;
  RankGroups groups_;
  std::unique_ptr<OffloadArea> offload_;  // from the first run on; null if the plan has none
  std::vector<Step> steps_;
  std::vector<size_t> steps_before_;  // by index into the plan's order, and at the end: steps that run before
  size_t interruptible_steps_ = 0;
  std::vector<void*> pointers_;
  std::vector<ResolvedCopy> copies_;
  std::vector<std::vector<size_t>> input_pointers_;  // by graph input: indices in pointers_ of its address
  std::vector<OutputNotice> notices_;                // their `nodes` are indices of steps
  OutputListener* listener_ = nullptr;               // null if there are no notices
  std::vector<double> seconds_;                      // by node, summed over runs; empty unless timed
  std::vector<NodeRun>* recorded_ = nullptr;
  bool resolved_ = false;
  bool has_run_ = false;
  std::set<const Kernel*> products_;  // products that the first run has run
  Kernels kernels_;                   // keep the cache's kernels in use; the steps run copies
  std::shared_ptr<void> kernel_cache_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> CompileProgram(const Graph& legal, const CompileOptions& options, int threads,
                                                        KernelCache& cache) {
  Graph graph;
  if (options.keep_values) {  // FuseKernels keeps the values between a normalization and its neighbors
    ASSIGN_OR_RETURN(FusedGraph kernels, FuseKernels(legal));
    graph = std::move(kernels.graph);
  } else {
    ASSIGN_OR_RETURN(graph, FuseGraph(legal));
  }
  auto program = std::make_unique<CpuProgram>(std::move(graph), options, threads);
  RETURN_IF_ERROR(program->Compile(cache));
  return program;
}

absl::StatusOr<std::vector<size_t>> NodeWorkspaces(const Graph& graph, int threads, KernelCache& cache) {
  SetNumThreads(threads);
  ASSIGN_OR_RETURN(const Kernels kernels, PrepareNodes(graph, cache));
  return GetWorkspaces(kernels);
}

}  // namespace onnxtrain::cpu
