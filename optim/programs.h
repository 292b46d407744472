// Compiled programs and what they are bound to: one activation arena for all of them, feeds and outputs of their own, and
// derived values (packed weights) that they share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/state.h"

namespace onnxtrain {

struct CompiledProgram {
  std::unique_ptr<Program> program;
  std::map<std::string, Region> feeds;    // by feed name
  std::map<std::string, Region> outputs;  // outputs that nobody else holds, by name
  Arena own;                             // the memory of both
};

using Bindings = std::map<std::string, Region>;

class Programs {
 public:
  explicit Programs(Backend* backend) : backend_(*backend) {}

  // Legalizes, hoists what depends on weights alone, compiles and binds. Inputs that are no feeds and outputs are looked
  // up in `overrides` and then in `state`; feeds, and outputs found in neither, get memory of the program's own.
  absl::StatusOr<std::unique_ptr<CompiledProgram>> Compile(const Graph& graph, const Bindings& overrides, const Bindings& state);

  // Recomputes the derived values: after every update and whenever weights are written.
  absl::Status Derive();

  size_t bytes() const;              // activation arena, feeds, outputs and derived values
  size_t arena_bytes() const { return arena_size_; }
  double compile_seconds() const { return compile_seconds_; }

 private:
  // Moves what depends on weights alone into a derive program, runs that once and gives the rest.
  absl::StatusOr<Graph> HoistDerived(const Graph& legal, const Bindings& state);
  absl::Status Bind(CompiledProgram& program, const Bindings& overrides, const Bindings& state);
  absl::Status BindArena(CompiledProgram& program);
  absl::Status BindInputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state);
  absl::Status BindOutputs(CompiledProgram& program, const Bindings& overrides, const Bindings& state);

  Backend& backend_;
  std::unique_ptr<Buffer> arena_;
  size_t arena_size_ = 0;
  std::vector<CompiledProgram*> all_;                        // those that use the arena
  std::vector<std::unique_ptr<CompiledProgram>> derive_;     // in the order in which they were made
  std::map<std::string, Region> derived_;                     // by canonical name
  std::vector<std::unique_ptr<Arena>> derived_memory_;
  size_t own_bytes_ = 0;
  double compile_seconds_ = 0;
};

}  // namespace onnxtrain
