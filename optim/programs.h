// Compiled programs and what they are bound to. All of them share one activation arena, one place for feeds and outputs, and
// derived values (packed weights).
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
  // Feeds are written before a run and outputs that nobody else holds are read after it: no other program may run between.
  std::map<std::string, Region> feeds, outputs;
  size_t exchanged = 0;                   // bytes of both
  size_t code = 0;                        // bytes of kernels that are made at run time, as far as is known
  int64_t repeated = 0;                   // nodes that run a second time instead of being kept
  double extra_share = 0;                 // of the run's time, by the cost model, spent on them
};

class Programs {
 public:
  // `compute`: as in OptimizeProgram; `time_nodes`: as in CompileOptions. `other_bytes`: what the session holds beside its
  // programs, asked at each Compile.
  Programs(Backend* backend, DType compute, bool time_nodes, RecomputeSpec recompute = {},
           std::function<size_t()> other_bytes = [] { return size_t{0}; });

  // Legalizes, hoists what depends on weights alone, chooses what is recomputed, compiles and binds. Inputs that are no feeds and outputs are looked
  // up in `overrides` and then in `state`; feeds, and outputs found in neither, lie in what all programs exchange with the host through.
  // Regions of feeds and outputs may move when another program is compiled.
  // `time_nodes`: this program's nodes are timed in any case. `samples`: how many it takes at once; if memory is too small for
  // more than one, the error recommends fewer.
  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(const Graph& graph, const Bindings& overrides, const Bindings& state,
                                                           bool time_nodes = false, int64_t samples = 1);

  // Runs a program; derived values that it reads are computed before where weights have changed since.
  absl::Status Run(CompiledProgram& program);
  // Weights have changed: after every update and whenever they are written.
  void WeightsChanged() { ++weights_version_; }

  // Forgets a program that is about to be destroyed and gives back what programs share. Another program must be compiled
  // before any runs again.
  void Release(const CompiledProgram& program);

  size_t derived_bytes() const;      // packed weights
  size_t arena_bytes() const { return arena_.size; }
  size_t code_bytes() const;         // kernels made at run time, which programs share
  size_t exchange_bytes() const { return exchange_.size; }  // feeds and outputs
  std::vector<const CompiledProgram*> derive_programs() const;
  double compile_seconds() const { return compile_seconds_; }

 private:
  // Moves what depends on weights alone into a derive program and gives the rest.
  absl::StatusOr<Graph> HoistDerived(const Graph& legal, const Bindings& state);
  absl::Status CompileWithin(Graph legal, bool time_nodes, int64_t samples, CompiledProgram* compiled);
  size_t BytesBesideArena(const CompiledProgram& next) const;
  absl::Status TooLarge(size_t arena, size_t limit, size_t beside, int64_t samples) const;
  static void LayOutExchange(const Graph& graph, const Bindings& overrides, const Bindings& state, CompiledProgram* program);
  absl::Status Bind(CompiledProgram& program, const Bindings& overrides, const Bindings& state);
  // Memory that all programs use, one after the other: as large as the largest needs.
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
  const RecomputeSpec recompute_;
  const std::function<size_t()> other_bytes_;
  Shared arena_, exchange_;
  std::vector<CompiledProgram*> all_;                        // those that use both
  struct DeriveProgram {
    std::unique_ptr<CompiledProgram> compiled;
    int64_t version = -1;  // of the weights that its values were computed from
  };
  std::vector<DeriveProgram> derive_;
  std::map<std::string, size_t> derived_by_;  // derived value → index into derive_
  int64_t weights_version_ = 0;
  Bindings derived_;                          // where derived values live, by canonical name
  std::vector<std::unique_ptr<Arena>> derived_memory_;
  double compile_seconds_ = 0;
};

}  // namespace onnxtrain
