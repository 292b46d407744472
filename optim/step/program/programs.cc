#include "optim/step/program/programs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "backends/arena_packing.h"
#include "backends/backend.h"
#include "backends/output_notices.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/log.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/graph/text_form.h"
#include "frontend/ops/row.h"
#include "frontend/passes/eliminate.h"
#include "frontend/passes/hoist.h"
#include "frontend/passes/pass.h"
#include "optim/memory/policy.h"
#include "optim/record/telemetry/trace.h"
#include "optim/step/program/optimize.h"
#include "optim/step/program/stored_weights.h"

namespace onnxtrain {
namespace {

// Measured with oneDNN 2.6 on MLPs, CNNs, U-Nets, LSTMs and transformers: 30 to 55 KiB of descriptions and 9 to 22 KiB
// of code for a kind, 7 KiB for each call of a program.
constexpr size_t kKindBytes = size_t{56} << 10, kCallBytes = size_t{7} << 10;
// A program keeps its graph after fusion, which halves the number of nodes.
constexpr size_t kNodeBytes = kGraphNodeBytes / 2;

size_t HashKind(const Graph& graph, const Node& node) {
  std::string text = StrCat(node.op, Print(node.attrs));
  for (const auto* values : {&node.inputs, &node.outputs}) {
    for (ValueId v : *values) text += v == kNoValue ? "_" : ToString(graph.type(v));
  }
  return std::hash<std::string>()(text);
}

}  // namespace

CodeEstimate::CodeEstimate(const Graph& graph) {
  nodes_ = graph.nodes().size();
  for (const Node& node : graph.nodes()) {
    if (FindOp(node.op)->flops == nullptr) continue;
    kinds_.insert(HashKind(graph, node));
    ++calls_;
  }
}

void CodeEstimate::Include(const CodeEstimate& other) {
  kinds_.insert(other.kinds_.begin(), other.kinds_.end());
  calls_ += other.calls_;
  nodes_ += other.nodes_;
}

size_t CodeEstimate::kind_bytes() const { return kinds_.size() * kKindBytes; }

size_t CodeEstimate::call_bytes() const { return calls_ * kCallBytes; }

size_t CodeEstimate::program_bytes() const { return call_bytes() + nodes_ * kNodeBytes; }

namespace {

const Region* Find(const Bindings& bindings, const std::string& name) {
  const auto it = bindings.find(name);
  return it == bindings.end() ? nullptr : &it->second;
}

const Region* Lookup(const std::string& name, const Bindings& overrides, const Bindings& state) {
  const Region* override = Find(overrides, name);
  return override != nullptr ? override : Find(state, name);
}

// Returns the region to which an output without `into` is written; null for the exchange buffer, from which the host
// reads it. A weight that the model returns unchanged also goes to the exchange buffer: the region of that name in
// `state` is the weight itself.
const Region* Destination(const Graph& graph, const std::string& output, const Bindings& overrides,
                          const Bindings& state) {
  return graph.FindInput(output) == nullptr ? Lookup(output, overrides, state) : Find(overrides, output);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompiledProgram>> Programs::Compile(Graph graph, const Bindings& overrides,
                                                                   const Bindings& state, int64_t samples,
                                                                   const OutputGroups& transient_outputs) {
  const PreparingScope preparing;
  const auto start = std::chrono::steady_clock::now();
  // No program runs now, so graphs and plans of this one may use the memory of the arena.
  if (backend_.device() == "cpu") arena_.Reset();
  const auto region = [&](const std::string& name) { return Lookup(name, overrides, state); };
  auto compiled = std::make_unique<CompiledProgram>();
  {
    ASSIGN_OR_RETURN(Graph legal, AdaptToStoredWeights(graph, region, owner_.seed));
    graph = {};
    ASSIGN_OR_RETURN(legal, OptimizeProgram(std::move(legal), compute_));
    ASSIGN_OR_RETURN(legal, backend_.Legalize(legal));
    ASSIGN_OR_RETURN(legal, HoistDerived(std::move(legal), state));
    const Pass widen = {"widen_where_read", WidenWhereRead};
    ASSIGN_OR_RETURN(legal, RunPasses(std::move(legal), {&widen, 1}));
    compiled->id = compiled_++;
    LayOutExchange(legal, overrides, state, compiled.get());
    compiled->code = CodeEstimate(legal);
    if (backend_.FusesElementwise()) {
      const Pass recompute = {"recompute_elementwise", RecomputeElementwise};
      ASSIGN_OR_RETURN(legal, RunPasses(std::move(legal), {&recompute, 1}));
    }
    RETURN_IF_ERROR(CompileWithin(legal, samples, compiled.get()));
  }
  PackOutputs(transient_outputs, compiled.get());
  RETURN_IF_ERROR(Bind(*compiled, overrides, state));
  all_.push_back(compiled.get());
  backend_.DropUnusedKernels();  // of plans that were not taken
  ReturnFreePages();             // of graphs and plans before the final ones, which no plan counts
  compile_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

namespace {

size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

size_t Plus(size_t a, size_t b) { return a > std::numeric_limits<size_t>::max() - b ? a : a + b; }

size_t Less(size_t a, size_t b) { return a - std::min(a, b); }

constexpr double kPlannable = 0.95;
constexpr char kLeastBudget[] = "onnxtrain/least_budget";  // payload of a status: a number of bytes

size_t WholeMebibytes(size_t bytes) { return (bytes + (size_t{1} << 20) - 1) >> 20; }

std::string Mebibytes(size_t bytes) { return StrCat(WholeMebibytes(bytes), "MiB"); }

// Formats bytes exactly, with a unit that command-line flags accept.
std::string ExactBytes(size_t bytes) {
  if (bytes % (size_t{1} << 20) == 0) return StrCat(bytes >> 20, "MiB");
  return bytes % 1024 == 0 ? StrCat(bytes >> 10, "KiB") : StrCat(bytes);
}

}  // namespace

std::optional<int64_t> LeastBudget(const absl::Status& refusal) {
  const auto payload = refusal.GetPayload(kLeastBudget);
  return payload ? std::optional(std::stoll(std::string(*payload))) : std::nullopt;
}

absl::Status RefuseBudget(int64_t budget, int64_t least, int64_t samples) {
  absl::Status refusal = Invalid("`memory_budget` ", ExactBytes(budget), ": the smallest that does is ",
                                 Mebibytes(least), samples > 1 ? " (or a smaller `micro_batch_size`)" : "");
  refusal.SetPayload(kLeastBudget, absl::Cord(StrCat(WholeMebibytes(least) << 20)));
  return refusal;
}

int64_t PlannableBytes(int64_t budget) { return static_cast<int64_t>(static_cast<double>(budget) * kPlannable); }

int64_t BudgetFor(int64_t bytes) { return static_cast<int64_t>(std::ceil(static_cast<double>(bytes) / kPlannable)); }

// Returns the bytes in use besides the arena when `next` is compiled, with `code` as the code of all programs.
size_t Programs::BytesBesideArena(const CompiledProgram& next, const CodeEstimate& code) const {
  return owner_.other_bytes() + code.bytes() + derived_bytes() +
         std::max(exchange_bytes(), next.exchanged - next.read_in_place);
}

// Returns BytesBesideArena after the eviction of all programs that may be evicted.
size_t Programs::LeastBesideArena(const CompiledProgram& next) const {
  return BytesBesideArena(next, owner_.may_evict() ? next.code : CodeWith(next));
}

size_t Programs::Budget() const { return static_cast<size_t>(PlannableBytes(recompute_.memory_budget)); }

// Returns the bytes that the budget, or else the free memory, leaves for the arena of `next` after all possible
// evictions. `spare` is the code size of programs that `next` must not evict.
size_t Programs::ArenaLimit(const CompiledProgram& next, size_t spare) const {
  if (recompute_.memory_budget == 0) return Plus(backend_.FreeMemory(), arena_.size);
  return Less(Budget(), LeastBesideArena(next) + spare + recompute_.reserved);
}

// Makes room for a program with this arena, and for its code, while programs may be evicted.
void Programs::EvictFor(const CompiledProgram& next, size_t arena) {
  if (recompute_.memory_budget == 0) return;
  const auto needed = [&] {
    size_t largest = std::max(arena, owner_.compile_bytes());
    for (const CompiledProgram* held : all_) largest = std::max(largest, arena_.needed(*held));
    return BytesBesideArena(next, CodeWith(next)) + largest;
  };
  while (owner_.may_evict() && needed() > Budget() && owner_.evict()) {
  }
}

absl::Status Programs::CompileWithin(const Graph& legal, int64_t samples, CompiledProgram* compiled) {
  EvictFor(*compiled, 0);
  RETURN_IF_ERROR(CompileToFit(legal, samples, compiled));
  const MemoryUse use = compiled->program->memory();
  EvictFor(*compiled, use.arena + use.scratch);
  return absl::OkStatus();
}

// Compiles the graph unchanged, or with a recomputation plan if it needs too much memory or the mode requires one.
absl::Status Programs::CompileToFit(const Graph& legal, int64_t samples, CompiledProgram* compiled) {
  const CompileOptions options{.keep_values = options_.keep_values, .time_nodes = options_.time_nodes};
  const size_t spare = recompute_.memory_budget > 0 ? owner_.code_beside(compiled->code) : 0;
  size_t scratch = 0;
  if (recompute_.mode != RecomputeMode::kAll && recompute_.mode != RecomputeMode::kSqrt) {
    ASSIGN_OR_RETURN(compiled->program, backend_.Compile(legal, options));
    const MemoryUse use = compiled->program->memory();
    if (use.arena + use.scratch <= ArenaLimit(*compiled, spare)) return absl::OkStatus();
    scratch = use.scratch;
    compiled->program.reset();
  }
  size_t smallest = 0;
  absl::Status status = absl::ResourceExhaustedError("");
  for (size_t left : {spare, size_t{0}}) {
    const size_t limit = Less(ArenaLimit(*compiled, left), scratch);
    if (absl::IsResourceExhausted(status)) status = CompileRecomputed(legal, options, limit, compiled, &smallest);
  }
  if (recompute_.offload && absl::IsResourceExhausted(status)) {
    const size_t limit = Less(ArenaLimit(*compiled, 0), scratch);
    status = CompileOffloading(legal, options, limit, compiled, &smallest);
  }
  return absl::IsResourceExhausted(status) ? TooLarge(smallest + scratch, *compiled, samples) : status;
}

// Compiles the smallest plan, of *smallest bytes, whose values go to a file as far as `limit` has no room for them.
absl::Status Programs::CompileOffloading(const Graph& legal, CompileOptions options, size_t limit,
                                         CompiledProgram* compiled, size_t* smallest) {
  options.memory_limit = limit;
  RETURN_IF_ERROR(CompileRecomputed(legal, options, *smallest, compiled, smallest));
  *smallest = compiled->program->memory().arena;
  return *smallest <= limit ? absl::OkStatus() : absl::ResourceExhaustedError("");
}

// Plans recomputation on the fused graph and applies the plan to the graph before fusion, where clones fuse with their
// neighbors. If they fuse so that the program needs more memory than planned, compiles the planned graph itself, and if
// that is too large, too, tries the next smaller plan.
absl::Status Programs::CompileRecomputed(const Graph& legal, const CompileOptions& options, size_t limit,
                                         CompiledProgram* compiled, size_t* smallest) {
  FusedGraph fused;
  const auto fuse = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(fused, backend_.Fuse(legal));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunRewrite("fuse", fuse, {&fused.graph}));
  ASSIGN_OR_RETURN(const std::vector<size_t> workspaces, backend_.Workspaces(fused.graph));
  const RecomputePlanner planner(fused.graph, workspaces, backend_.device() == "cpu" ? 64 : 512, owner_.recompute_memo);
  size_t least = std::numeric_limits<size_t>::max();  // of the programs that were compiled and are too large
  for (size_t planned = limit;;) {
    const auto chosen = ChooseRecompute(planner, recompute_.mode, planned, smallest);
    if (absl::IsResourceExhausted(chosen.status()) && least != std::numeric_limits<size_t>::max()) *smallest = least;
    RETURN_IF_ERROR(chosen.status());
    const RecomputePlan& plan = *chosen;
    const Pass rematerialize = {"rematerialize",
                                [&](const Graph& g) { return ApplyRecompute(g, fused, planner, plan.recomputed); }};
    ASSIGN_OR_RETURN(const Graph recomputed, RunPasses(legal, {&rematerialize, 1}));
    ASSIGN_OR_RETURN(compiled->program, backend_.Compile(recomputed, options));
    if (compiled->program->memory().arena > limit) {
      ASSIGN_OR_RETURN(compiled->program, backend_.Compile(planner.PlannedGraph(plan), options));
    }
    if (const size_t arena = compiled->program->memory().arena; arena > limit && plan.arena > 0) {
      least = std::min(least, arena);
      planned = plan.arena - 1;
      continue;
    }
    compiled->repeated = plan.repeated;
    compiled->extra_share = plan.seconds > 0 ? plan.extra_seconds / plan.seconds : 0;
    return absl::OkStatus();
  }
}

absl::Status Programs::TooLarge(size_t arena, const CompiledProgram& program, int64_t samples) const {
  if (recompute_.memory_budget > 0) {
    const size_t needed = LeastBesideArena(program) + arena + recompute_.reserved;
    return RefuseBudget(recompute_.memory_budget, BudgetFor(static_cast<int64_t>(needed)), samples);
  }
  return absl::ResourceExhaustedError(StrCat("activations need ", Mebibytes(arena), ", but only ",
                                             Mebibytes(ArenaLimit(program, 0)), " of memory are free",
                                             samples > 1 ? ": a smaller `micro_batch_size` needs less" : ""));
}

void Programs::LayOutExchange(const Graph& graph, const Bindings& overrides, const Bindings& state,
                              CompiledProgram* program) const {
  const auto add = [&](const std::string& name, ValueId value, std::map<std::string, Region>* into) {
    const Type& type = graph.type(value);
    (*into)[name] = {{nullptr, program->exchanged}, type};
    program->exchanged += Aligned(type.bytes());
  };
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind != InputKind::kFeed) continue;
    add(input.name, input.value, &program->feeds);
    // Every micro-batch of such a feed is aligned if the whole batch is.
    const size_t bytes = graph.type(input.value).bytes();
    if (backend_.ReadsHostMemory() && bytes % kFeedAlignment == 0) program->read_in_place += bytes;
  }
  for (const GraphOutput& output : graph.outputs()) {
    if (output.into == kNoValue && Destination(graph, output.name, overrides, state) == nullptr)
      add(output.name, output.value, &program->outputs);
  }
}

namespace {

// Returns the live ranges of outputs; each lasts until its group and all previous groups are complete.
std::vector<Block> ListBlocks(const Graph& graph, const std::vector<OutputRange>& ranges, const OutputGroups& groups) {
  std::vector<Block> blocks;
  size_t complete = 0;
  for (const std::vector<std::string>& group : groups) {
    const size_t first = blocks.size();
    for (const std::string& name : group) {
      const GraphOutput* output = graph.FindOutput(name);
      const OutputRange& range = ranges[output - graph.outputs().data()];
      complete = std::max(complete, range.last);
      blocks.push_back({Aligned(graph.type(output->value).bytes()), static_cast<int32_t>(range.first), 0});
    }
    for (size_t i = first; i < blocks.size(); ++i) blocks[i].last = static_cast<int32_t>(complete);
  }
  return blocks;
}

}  // namespace

// Lays out feeds and other outputs first.
void Programs::PackOutputs(const OutputGroups& transient_outputs, CompiledProgram* program) const {
  const auto* ranges = dynamic_cast<const OutputRanges*>(program->program.get());
  if (transient_outputs.empty() || ranges == nullptr) return;
  const std::vector<Block> blocks = ListBlocks(program->program->graph(), ranges->TouchedRanges(), transient_outputs);
  const Packing packing = PackBlocks(blocks);
  std::set<std::string> packed;
  for (const auto& group : transient_outputs) packed.insert(group.begin(), group.end());
  program->exchanged = 0;
  for (auto* regions : {&program->feeds, &program->outputs}) {
    for (auto& [name, region] : *regions) {
      if (packed.contains(name)) continue;
      region.view.offset = program->exchanged;
      program->exchanged += Aligned(region.type.bytes());
    }
  }
  auto offset = packing.offsets.begin();
  for (const auto& group : transient_outputs) {
    for (const std::string& name : group) program->outputs.at(name).view.offset = program->exchanged + *offset++;
  }
  program->exchanged += packing.total;
}

absl::Status Programs::Bind(CompiledProgram& program, const Bindings& overrides, const Bindings& state) {
  RETURN_IF_ERROR(BindShared(program, exchange_));
  RETURN_IF_ERROR(BindInputs(program, overrides, state));
  RETURN_IF_ERROR(BindOutputs(program, overrides, state));
  for (const auto& [name, ranks] : groups_) RETURN_IF_ERROR(program.program->BindGroup(name, ranks));
  return BindShared(program, arena_);
}

absl::Status Programs::BindInputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state) {
  const Graph& graph = program.program->graph();
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kFeed) continue;
    const bool derived = input.kind == InputKind::kDerived;
    const Region* region = derived ? &derived_.at(input.name) : Lookup(input.name, overrides, state);
    if (derived) program.derived_by.push_back(derived_by_.at(input.name));
    CHECK(region != nullptr) << "nothing to bind the input " << input.name << " to";
    CHECK(region->type == graph.type(input.value))
        << input.name << ": " << ToString(region->type) << " against " << ToString(graph.type(input.value));
    RETURN_IF_ERROR(program.program->BindInput(input.name, region->view));
  }
  return absl::OkStatus();
}

absl::Status Programs::BindOutputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state) {
  const Graph& graph = program.program->graph();
  for (const GraphOutput& output : graph.outputs()) {
    if (output.into != kNoValue) continue;
    const Region* found = Destination(graph, output.name, overrides, state);
    if (found != nullptr) RETURN_IF_ERROR(program.program->BindOutput(output.name, found->view));
  }
  return absl::OkStatus();
}

namespace {

absl::Status BindArena(CompiledProgram& program, Buffer* buffer) { return program.program->BindArena({buffer, 0}); }

absl::Status BindExchange(CompiledProgram& program, Buffer* buffer) {
  for (auto& [name, region] : program.feeds) {
    region.view.buffer = buffer;
    RETURN_IF_ERROR(program.program->BindInput(name, region.view));
  }
  for (auto& [name, region] : program.outputs) {
    region.view.buffer = buffer;
    RETURN_IF_ERROR(program.program->BindOutput(name, region.view));
  }
  return absl::OkStatus();
}

}  // namespace

Programs::Programs(Backend* backend, DType compute, bool time_nodes, RecomputeSpec recompute, ProgramOwner owner)
    : backend_(*backend),
      compute_(compute),
      options_{.time_nodes = time_nodes},
      recompute_(recompute),
      owner_(std::move(owner)),
      arena_{"activations", [](const CompiledProgram& p) { return p.program->memory().arena; }, BindArena},
      exchange_{"inputs and outputs of programs", [](const CompiledProgram& p) { return p.exchanged; }, BindExchange} {}

// Binds the program to the shared memory. When that grows, all programs are bound to the new memory.
absl::Status Programs::BindShared(CompiledProgram& program, Shared& shared) {
  size_t needed = shared.needed(program);
  for (const CompiledProgram* other : all_) needed = std::max(needed, shared.needed(*other));
  if (needed <= shared.size) return shared.bind(program, shared.buffer.get());
  RETURN_IF_ERROR(backend_.Synchronize());
  shared.Reset();
  ASSIGN_OR_RETURN(shared.buffer, AllocateChecked(backend_, needed, shared.what));
  shared.size = needed;
  for (CompiledProgram* other : all_) RETURN_IF_ERROR(shared.bind(*other, shared.buffer.get()));
  return shared.bind(program, shared.buffer.get());
}

size_t Programs::exchange_bytes() const {
  size_t bytes = 0;
  for (const CompiledProgram* program : all_) bytes = std::max(bytes, program->exchanged - program->read_in_place);
  return bytes;
}

size_t Programs::offloaded_bytes() const {
  size_t bytes = 0;
  for (const CompiledProgram* program : all_) bytes = std::max(bytes, program->program->memory().offloaded);
  return bytes;
}

void Programs::Release(const CompiledProgram& program) {
  std::erase(all_, &program);
  arena_.Reset();
  exchange_.Reset();
}

void Programs::Clear() {
  all_.clear();
  derive_.clear();
  derived_by_.clear();
  derived_.clear();
  derived_memory_.clear();
  arena_.Reset();
  exchange_.Reset();
}

absl::StatusOr<Graph> Programs::HoistDerived(Graph legal, const Bindings& state) {
  if (!MayHoist(legal)) return legal;
  ASSIGN_OR_RETURN(const FusedGraph fused, backend_.Fuse(legal));
  Hoisted hoisted;
  const auto hoist = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(hoisted, Hoist(legal, ShouldHoist(fused)));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunRewrite("hoist", hoist, {&hoisted.main, &hoisted.derive}));
  for (const bool frozen : {true, false}) RETURN_IF_ERROR(CompileDerive(hoisted.derive, frozen, state));
  return std::move(hoisted.main);
}

absl::Status Programs::CompileDerive(const Graph& graph, bool frozen, const Bindings& state) {
  const std::vector<bool> is_frozen = FindFrozenValues(graph);
  Graph fresh = graph;
  fresh.ClearOutputs();
  auto memory = std::make_unique<Arena>();
  for (const GraphOutput& output : graph.outputs()) {
    // Derive programs of other programs may compute some of these values already.
    if (is_frozen[output.value] != frozen || derived_.contains(output.name)) continue;
    fresh.AddOutput(output.name, output.value);
    memory->Add(output.name, fresh.type(output.value));
  }
  if (fresh.outputs().empty()) return absl::OkStatus();
  RETURN_IF_ERROR(memory->Allocate(backend_, "packed weights"));
  for (const std::string& name : memory->names()) derived_[name] = memory->At(name);
  derived_memory_.push_back(std::move(memory));
  auto compiled = std::make_unique<CompiledProgram>();
  compiled->name = "derive";
  compiled->id = compiled_++;
  ASSIGN_OR_RETURN(compiled->program, backend_.Compile(Dce(fresh, {.drop_unused_weights = true}), options_));
  RETURN_IF_ERROR(Bind(*compiled, derived_, state));
  all_.push_back(compiled.get());
  for (const GraphOutput& output : fresh.outputs()) derived_by_[output.name] = derive_.size();
  derive_.push_back({.compiled = std::move(compiled), .frozen = frozen});
  return absl::OkStatus();
}

absl::Status Programs::Run(CompiledProgram& program) {
  if (arena_.buffer == nullptr) RETURN_IF_ERROR(BindShared(program, arena_));  // where another one failed to compile
  for (size_t i : program.derived_by) {
    const int64_t version = derive_[i].frozen ? frozen_version_ : weights_version_;
    if (derive_[i].version == version) continue;
    RETURN_IF_ERROR(RunOne(*derive_[i].compiled));
    derive_[i].version = version;
  }
  return RunOne(program);
}

absl::Status Programs::RunOne(CompiledProgram& program) {
  ++program.runs;
  if (trace_ == nullptr) return program.program->Run();
  program.program->RecordNodes(trace_->BeginRun());
  const absl::Status status = program.program->Run();
  program.program->RecordNodes(nullptr);
  trace_->EndRun(program.id, program.name, program.program->graph());
  return status;
}

std::vector<const CompiledProgram*> Programs::derive_programs() const {
  std::vector<const CompiledProgram*> programs;
  for (const DeriveProgram& derive : derive_) programs.push_back(derive.compiled.get());
  return programs;
}

CodeEstimate Programs::EstimateCode() const {
  CodeEstimate code;
  for (const CompiledProgram* program : all_) code.Include(program->code);
  return code;
}

CodeEstimate Programs::CodeWith(const CompiledProgram& next) const {
  CodeEstimate code = EstimateCode();
  code.Include(next.code);
  return code;
}

size_t Programs::derived_bytes() const {
  size_t total = 0;
  for (const auto& memory : derived_memory_) total += memory->size();
  return total;
}

}  // namespace onnxtrain
