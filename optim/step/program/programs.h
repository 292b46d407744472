// Compiled programs and their memory. All programs of a session share one arena for activations, one exchange buffer
// for feeds and outputs, and derived values (packed weights).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/graph/graph.h"
#include "optim/memory/policy.h"
#include "optim/step/state.h"

namespace onnxtrain {

enum class ProgramKind : uint8_t {
  kMicroFirst,
  kMicroNext,
  kMicroOutputsFirst,
  kMicroOutputsNext,
  kMicroInputsFirst,
  kMicroInputsNext,
  kStep,
  kNorm,
  kFiniteCheck,
  kTrainingLoss,
  kEval,
  kPredict
};

inline constexpr const char* kProgramNames[] = {"micro_first",
                                                "micro_next",
                                                "micro_outputs_first",
                                                "micro_outputs_next",
                                                "micro_inputs_first",
                                                "micro_inputs_next",
                                                "step",
                                                "norm",
                                                "finite_check",
                                                "training_loss",
                                                "eval",
                                                "predict"};

static_assert(std::size(kProgramNames) == static_cast<size_t>(ProgramKind::kPredict) + 1);

inline bool IsMicro(ProgramKind kind) { return kind <= ProgramKind::kMicroInputsNext; }
inline bool IsTraining(ProgramKind kind) { return kind <= ProgramKind::kTrainingLoss; }
inline bool IsFirst(ProgramKind kind) {
  return kind == ProgramKind::kMicroFirst || kind == ProgramKind::kMicroOutputsFirst ||
         kind == ProgramKind::kMicroInputsFirst;
}
inline bool HasInputGradients(ProgramKind kind) {
  return kind == ProgramKind::kMicroInputsFirst || kind == ProgramKind::kMicroInputsNext;
}
inline bool HasOutputs(ProgramKind kind) {
  return kind == ProgramKind::kMicroOutputsFirst || kind == ProgramKind::kMicroOutputsNext || HasInputGradients(kind);
}
// An update overwrites pending gradients, so a micro-batch may be interrupted anywhere; a step changes weights midway.
inline Interruption FindInterruption(ProgramKind kind) {
  return kind == ProgramKind::kStep ? Interruption::kBeforeUpdate : Interruption::kAnywhere;
}
// Returns the kind for the micro-batch of this number, of the pair that begins with `first`.
inline ProgramKind MicroKind(ProgramKind first, int64_t micro) {
  return micro == 0 ? first : static_cast<ProgramKind>(static_cast<uint8_t>(first) + 1);
}

// Memory of a node of a graph with its values, types, names and attributes. Measured on decoders and encoders.
inline constexpr size_t kGraphNodeBytes = 800;

// Estimates the memory of compiled programs besides their arenas: graphs, kernels and their operands. Products and
// convolutions of one kind (operator, attributes, operand types) share a generated kernel, also across programs; each
// call has its own descriptions of the operands.
class CodeEstimate {
 public:
  CodeEstimate() = default;
  explicit CodeEstimate(const Graph& graph);

  // Adds another program.
  void Include(const CodeEstimate& other);
  size_t bytes() const { return kind_bytes() + program_bytes(); }
  size_t kind_bytes() const;
  size_t call_bytes() const;
  size_t program_bytes() const;  // of calls and nodes, which programs do not share

 private:
  std::set<size_t> kinds_;  // hashes
  size_t calls_ = 0, nodes_ = 0;
};

class Trace;

// Groups of outputs that an OutputListener reads as soon as they are complete, in this order; their memory is then
// reused.
using OutputGroups = std::vector<std::vector<std::string>>;

struct CompiledProgram {
  std::string name;  // for profiles
  int64_t id = 0;    // unique within Programs
  std::unique_ptr<Program> program;
  int64_t runs = 0;
  std::vector<size_t> derived_by;  // the derive programs whose values it reads
  // Regions of the exchange buffer. The host writes feeds before a run and reads outputs after it; no other program may
  // run in between.
  std::map<std::string, Region> feeds, outputs;
  size_t exchanged = 0;      // bytes of both
  size_t read_in_place = 0;  // of those, bytes of feeds that no run touches (Program::ReadInPlace)
  CodeEstimate code;         // of generated kernels
  int64_t repeated = 0;      // number of recomputed nodes
  double extra_share = 0;    // share of the run's time that recomputation takes, by the cost model
};

// Callbacks from Compile to the owner of the programs.
struct ProgramOwner {
  std::function<size_t()> other_bytes = [] { return size_t{0}; };  // that it holds beside its programs
  // Releases and destroys the least recently used program if a memory budget has no room for another one. Returns false
  // if there is none, or if all are needed (`may_evict`).
  std::function<bool()> evict = [] { return false; };
  std::function<bool()> may_evict = [] { return true; };
  // Returns the bytes that compiling needs; the arena is released to make room for them.
  std::function<size_t()> compile_bytes = [] { return size_t{0}; };
  // Returns the bytes of code of the programs that will be in memory together with one that has this code.
  std::function<size_t(const CodeEstimate&)> code_beside = [](const CodeEstimate&) { return size_t{0}; };
  uint64_t seed = 0;                        // of the rounding of updated weights
  RecomputeMemo* recompute_memo = nullptr;  // outlives the programs; may be null
};

// Returns the smallest sufficient budget, in bytes, that an out-of-memory error of Compile names; nullopt for other
// errors.
std::optional<int64_t> LeastBudget(const absl::Status& refusal);

// Returns the error that a budget is too small for micro-batches of `samples` samples, which need `least` bytes.
absl::Status RefuseBudget(int64_t budget, int64_t least, int64_t samples);

// Returns the bytes of a budget that plans may use. The rest is for memory that plans do not include, such as tables of
// libraries.
int64_t PlannableBytes(int64_t budget);

// Returns the smallest budget with PlannableBytes of at least `bytes`.
int64_t BudgetFor(int64_t bytes);

class Programs {
 public:
  // `compute`: as in OptimizeProgram; `time_nodes`: as in CompileOptions.
  Programs(Backend* backend, DType compute, bool time_nodes, RecomputeSpec recompute = {}, ProgramOwner owner = {});

  // Adapts the graph to weights that are stored in bf16 (stored_weights.h), legalizes, hoists values of weights,
  // rematerializes within the budget, compiles and binds. Inputs other than feeds, and outputs, are looked up in
  // `overrides` and then in `state`; feeds, and outputs found in neither, are regions of the exchange buffer. These
  // regions may move when another program is compiled. `samples` is the batch size; if it is above 1 and memory is too
  // small, the error suggests fewer. `transient_outputs` are outputs in the exchange buffer that may alias; each is
  // read in the completion callback of the program.
  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(Graph graph, const Bindings& overrides,
                                                           const Bindings& state, int64_t samples = 1,
                                                           const OutputGroups& transient_outputs = {});

  // Runs a program, after the derive programs that it reads from if weights have changed since their last run.
  absl::Status Run(CompiledProgram& program);
  // Binds the group of ranks of collective operators (Program::BindGroup) in programs that are compiled later.
  void BindGroup(std::string name, Collectives* ranks) { groups_.insert_or_assign(std::move(name), ranks); }
  // Records the following runs, node by node, in *trace; null ends the recording.
  void SetTrace(Trace* trace) { trace_ = trace; }
  // Sets RecomputeSpec::reserved for programs that are compiled later.
  void Reserve(int64_t bytes) { recompute_.reserved = bytes; }
  // Must be called after every update, which changes trained weights only.
  void WeightsUpdated() { ++weights_version_; }
  // Must be called whenever weights are written otherwise.
  void WeightsChanged() { ++weights_version_, ++frozen_version_; }

  // Unregisters a program that is about to be destroyed and frees the shared memory. Another program must be compiled
  // before any program runs again.
  void Release(const CompiledProgram& program);

  // Unregisters all programs, which are about to be destroyed, and frees all derived values.
  void Clear();

  size_t derived_bytes() const;  // packed weights
  size_t arena_bytes() const { return arena_.size; }
  size_t offloaded_bytes() const;                               // MemoryUse::offloaded of the program with most of them
  size_t code_bytes() const { return EstimateCode().bytes(); }  // of all programs, which share equal kernels
  size_t exchange_bytes() const;  // feeds and outputs in memory of their own, of the program with most of them
  std::vector<const CompiledProgram*> derive_programs() const;
  double compile_seconds() const { return compile_seconds_; }

 private:
  absl::Status RunOne(CompiledProgram& program);
  // Moves values that depend on weights alone into derive programs and returns the remaining graph.
  absl::StatusOr<Graph> HoistDerived(Graph legal, const Bindings& state);
  // Compiles a derive program for the outputs of `graph` that depend on frozen weights alone, or for all others.
  absl::Status CompileDerive(const Graph& graph, bool frozen, const Bindings& state);
  absl::Status CompileWithin(const Graph& legal, int64_t samples, CompiledProgram* compiled);
  absl::Status CompileToFit(const Graph& legal, int64_t samples, CompiledProgram* compiled);
  void EvictFor(const CompiledProgram& next, size_t arena);
  size_t Budget() const;
  size_t ArenaLimit(const CompiledProgram& next, size_t spare) const;
  absl::Status CompileOffloading(const Graph& legal, CompileOptions options, size_t limit, CompiledProgram* compiled,
                                 size_t* smallest);
  absl::Status CompileRecomputed(const Graph& legal, const CompileOptions& options, size_t limit,
                                 CompiledProgram* compiled, size_t* smallest);
  CodeEstimate EstimateCode() const;
  CodeEstimate CodeWith(const CompiledProgram& next) const;
  size_t LeastBesideArena(const CompiledProgram& next) const;
  size_t BytesBesideArena(const CompiledProgram& next, const CodeEstimate& code) const;
  absl::Status TooLarge(size_t arena, const CompiledProgram& program, int64_t samples) const;
  void LayOutExchange(const Graph& graph, const Bindings& overrides, const Bindings& state,
                      CompiledProgram* program) const;
  void PackOutputs(const OutputGroups& transient_outputs, CompiledProgram* program) const;
  absl::Status Bind(CompiledProgram& program, const Bindings& overrides, const Bindings& state);
  // A buffer that all programs use in turn, as large as the largest program needs.
  struct Shared {
    const char* what;
    size_t (*needed)(const CompiledProgram& program);
    absl::Status (*bind)(CompiledProgram& program, Buffer* buffer);
    std::unique_ptr<Buffer> buffer;
    size_t size = 0;

    void Reset() { buffer.reset(), size = 0; }
  };
  absl::Status BindShared(CompiledProgram& program, Shared& shared);
  absl::Status BindInputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state);
  absl::Status BindOutputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state);

  Backend& backend_;
  const DType compute_;
  const CompileOptions options_;
  RecomputeSpec recompute_;
  const ProgramOwner owner_;
  Shared arena_, exchange_;
  std::vector<CompiledProgram*> all_;  // those that use both
  struct DeriveProgram {
    std::unique_ptr<CompiledProgram> compiled;
    bool frozen;           // reads frozen weights alone
    int64_t version = -1;  // of the weights that its values were computed from
  };
  std::vector<DeriveProgram> derive_;
  std::map<std::string, Collectives*> groups_;
  std::map<std::string, size_t> derived_by_;          // derived value → index into derive_
  int64_t weights_version_ = 0, frozen_version_ = 0;  // of all weights, of frozen ones
  Bindings derived_;                                  // where derived values live, by canonical name
  std::vector<std::unique_ptr<Arena>> derived_memory_;
  double compile_seconds_ = 0;
  int64_t compiled_ = 0;  // programs so far
  Trace* trace_ = nullptr;
};

}  // namespace onnxtrain
