// Compiled programs and what they are bound to: one activation arena for all of them, feeds and outputs of their own, and
// derived values (packed weights) that they share.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/recompute_policy.h"
#include "optim/state.h"

namespace onnxtrain {

struct CompiledProgram {
  std::unique_ptr<Program> program;
  int64_t runs = 0;
  std::vector<size_t> derived_by;         // the derive programs whose values it reads
  std::map<std::string, Region> feeds;    // by feed name
  std::map<std::string, Region> outputs;  // outputs that nobody else holds, by name
  Arena own;                             // the memory of both
  int64_t repeated = 0;                   // nodes that run a second time instead of being kept
  double extra_share = 0;                 // of the run's time, by the cost model, spent on them
};

using Bindings = std::map<std::string, Region>;

class Programs {
 public:
  // `compute`: as in OptimizeProgram; `time_nodes`: as in CompileOptions. `other_bytes`: what the session holds beside its
  // programs, asked at each Compile.
  Programs(Backend* backend, DType compute, bool time_nodes, RecomputeSpec recompute = {},
           std::function<size_t()> other_bytes = [] { return size_t{0}; })
      : backend_(*backend), compute_(compute), options_{.time_nodes = time_nodes}, recompute_(recompute),
        other_bytes_(std::move(other_bytes)) {}

  // Legalizes, hoists what depends on weights alone, chooses what is recomputed, compiles and binds. Inputs that are no feeds and outputs are looked
  // up in `overrides` and then in `state`; feeds, and outputs found in neither, get memory of the program's own.
  // `time_nodes`: this program's nodes are timed in any case.
  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(const Graph& graph, const Bindings& overrides, const Bindings& state,
                                                           bool time_nodes = false);

  // Runs a program; derived values that it reads are computed before where weights have changed since.
  absl::Status Run(CompiledProgram& program);
  // Weights have changed: after every update and whenever they are written.
  void WeightsChanged() { ++weights_version_; }

  // Forgets a program that is about to be destroyed and gives the activation arena back. Another program must be compiled
  // before any runs again.
  void Release(const CompiledProgram& program);

  size_t bytes() const;              // activation arena, feeds, outputs and derived values
  size_t derived_bytes() const;      // packed weights
  size_t arena_bytes() const { return arena_size_; }
  std::vector<const CompiledProgram*> derive_programs() const;
  double compile_seconds() const { return compile_seconds_; }

 private:
  // Moves what depends on weights alone into a derive program and gives the rest.
  absl::StatusOr<Graph> HoistDerived(const Graph& legal, const Bindings& state);
  absl::Status CompileWithin(Graph legal, bool time_nodes, CompiledProgram* compiled);
  size_t BytesBesideArena(size_t feeds) const;
  absl::Status TooLarge(size_t arena, size_t limit, size_t beside) const;
  absl::Status Bind(CompiledProgram& program, const Bindings& overrides, const Bindings& state);
  absl::Status BindArena(CompiledProgram& program);
  absl::Status BindInputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state);
  absl::Status BindOutputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state);

  Backend& backend_;
  const DType compute_;
  const CompileOptions options_;
  const RecomputeSpec recompute_;
  const std::function<size_t()> other_bytes_;
  std::unique_ptr<Buffer> arena_;
  size_t arena_size_ = 0;
  std::vector<CompiledProgram*> all_;                        // those that use the arena
  struct DeriveProgram {
    std::unique_ptr<CompiledProgram> compiled;
    int64_t version = -1;  // of the weights that its values were computed from
  };
  std::vector<DeriveProgram> derive_;
  std::map<std::string, size_t> derived_by_;  // derived value → index into derive_
  int64_t weights_version_ = 0;
  Bindings derived_;                          // where derived values live, by canonical name
  std::vector<std::unique_ptr<Arena>> derived_memory_;
  size_t own_bytes_ = 0;
  double compile_seconds_ = 0;
};

}  // namespace onnxtrain
