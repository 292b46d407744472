#include "optim/programs.h"

#include <chrono>

#include "backends/allocate.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/ops/row.h"
#include "frontend/passes/dce.h"
#include "frontend/passes/hoist.h"
#include "optim/optimize.h"

namespace onnxtrain {
namespace {

const Region* Lookup(const std::string& name, const Bindings& overrides, const Bindings& state) {
  if (auto it = overrides.find(name); it != overrides.end()) return &it->second;
  auto it = state.find(name);
  return it == state.end() ? nullptr : &it->second;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompiledProgram>> Programs::Compile(const Graph& graph, const Bindings& overrides,
                                                                   const Bindings& state,
                                                                     bool time_nodes) {
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const Graph optimized, OptimizeProgram(graph, compute_));
  ASSIGN_OR_RETURN(Graph legal, backend_.Legalize(optimized));
  ASSIGN_OR_RETURN(legal, HoistDerived(legal, state));
  auto compiled = std::make_unique<CompiledProgram>();
  ASSIGN_OR_RETURN(compiled->program, backend_.Compile(legal, {.time_nodes = options_.time_nodes || time_nodes}));
  RETURN_IF_ERROR(Bind(*compiled, overrides, state));
  all_.push_back(compiled.get());
  compile_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

absl::Status Programs::Bind(CompiledProgram& program, const Bindings& overrides, const Bindings& state) {
  const Graph& graph = program.program->graph();
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kFeed) program.own.Add("feed:" + input.name, graph.type(input.value));
  }
  for (const GraphOutput& output : graph.outputs()) {
    if (output.into == kNoValue && Lookup(output.name, overrides, state) == nullptr) {
      program.own.Add("output:" + output.name, graph.type(output.value));
    }
  }
  RETURN_IF_ERROR(program.own.Allocate(backend_, "inputs and outputs of a program"));
  own_bytes_ += program.own.size();
  RETURN_IF_ERROR(BindInputs(program, overrides, state));
  RETURN_IF_ERROR(BindOutputs(program, overrides, state));
  return BindArena(program);
}

absl::Status Programs::BindInputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state) {
  const Graph& graph = program.program->graph();
  for (const GraphInput& input : graph.inputs()) {
    if (input.kind == InputKind::kFeed) {
      const Region region = program.own.At("feed:" + input.name);
      program.feeds[input.name] = region;
      RETURN_IF_ERROR(program.program->BindInput(input.name, region.view));
      continue;
    }
    const bool derived = input.kind == InputKind::kDerived;
    const Region* region = derived ? &derived_.at(input.name) : Lookup(input.name, overrides, state);
    if (derived) program.derived_by.push_back(derived_by_.at(input.name));
    CHECK(region != nullptr) << "nothing to bind the input " << input.name << " to";
    CHECK(region->type == graph.type(input.value)) << input.name << ": " << ToString(region->type) << " against " << ToString(graph.type(input.value));
    RETURN_IF_ERROR(program.program->BindInput(input.name, region->view));
  }
  return absl::OkStatus();
}

absl::Status Programs::BindOutputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state) {
  const Graph& graph = program.program->graph();
  for (const GraphOutput& output : graph.outputs()) {
    if (output.into != kNoValue) continue;
    const Region* found = Lookup(output.name, overrides, state);
    if (found == nullptr) program.outputs[output.name] = program.own.At("output:" + output.name);
    RETURN_IF_ERROR(program.program->BindOutput(output.name, found == nullptr ? program.outputs[output.name].view : found->view));
  }
  return absl::OkStatus();
}

// The arena is as large as the largest program needs; when it grows, every program moves to the new one.
absl::Status Programs::BindArena(CompiledProgram& program) {
  const size_t needed = program.program->memory().arena;
  if (needed <= arena_size_) return program.program->BindArena({arena_.get(), 0});
  RETURN_IF_ERROR(backend_.Synchronize());
  arena_.reset();
  ASSIGN_OR_RETURN(arena_, AllocateChecked(backend_, needed, "activations"));
  arena_size_ = needed;
  for (CompiledProgram* other : all_) RETURN_IF_ERROR(other->program->BindArena({arena_.get(), 0}));
  return program.program->BindArena({arena_.get(), 0});
}

absl::StatusOr<Graph> Programs::HoistDerived(const Graph& legal, const Bindings& state) {
  ASSIGN_OR_RETURN(Hoisted hoisted, Hoist(legal, [](const Graph&, const Node& node) { return FindOp(node.op)->derive; }));
  // Other programs may derive some of the same values already.
  Graph fresh = hoisted.derive;
  fresh.ClearOutputs();
  auto memory = std::make_unique<Arena>();
  for (const GraphOutput& output : hoisted.derive.outputs()) {
    if (derived_.contains(output.name)) continue;
    fresh.AddOutput(output.name, output.value);
    memory->Add(output.name, fresh.type(output.value));
  }
  if (fresh.outputs().empty()) return std::move(hoisted.main);
  RETURN_IF_ERROR(memory->Allocate(backend_, "packed weights"));
  for (const std::string& name : memory->names()) derived_[name] = memory->At(name);
  derived_memory_.push_back(std::move(memory));
  auto compiled = std::make_unique<CompiledProgram>();
  ASSIGN_OR_RETURN(compiled->program, backend_.Compile(Dce(fresh, {.drop_unused_weights = true}), options_));
  RETURN_IF_ERROR(Bind(*compiled, derived_, state));
  all_.push_back(compiled.get());
  for (const GraphOutput& output : fresh.outputs()) derived_by_[output.name] = derive_.size();
  derive_.push_back({.compiled = std::move(compiled)});
  return std::move(hoisted.main);
}

absl::Status Programs::Run(CompiledProgram& program) {
  for (size_t i : program.derived_by) {
    if (derive_[i].version == weights_version_) continue;
    RETURN_IF_ERROR(derive_[i].compiled->program->Run());
    ++derive_[i].compiled->runs;
    derive_[i].version = weights_version_;
  }
  ++program.runs;
  return program.program->Run();
}

std::vector<const CompiledProgram*> Programs::derive_programs() const {
  std::vector<const CompiledProgram*> programs;
  for (const DeriveProgram& derive : derive_) programs.push_back(derive.compiled.get());
  return programs;
}

size_t Programs::bytes() const {
  size_t total = arena_size_ + own_bytes_;
  for (const auto& memory : derived_memory_) total += memory->size();
  return total;
}

}  // namespace onnxtrain
