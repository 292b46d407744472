// The memory that a compiled program is bound to. Shared by the backends.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "backends/memory_plan.h"

namespace onnxtrain {

class Bindings {
 public:
  // The graph and its plan must outlive the bindings.
  Bindings(const Graph& graph, const MemoryPlan& plan);

  // See Program. Fail where there is no such input or output, or the buffer is too small.
  absl::Status BindInput(std::string_view name, BufferView view);
  absl::Status BindOutput(std::string_view name, BufferView view);
  absl::Status BindArena(BufferView view) { return Bind("(arena)", plan_->arena_bytes, view, &arena_); }
  // Moves an input to another address until it is bound again; null: back to where it is bound. Returns whether its
  // address has changed.
  bool MoveInput(size_t input, std::byte* address);

  // Fails, naming it, where an input, an output or the arena is not bound.
  absl::Status CheckAllBound() const;
  // Returns the address of a place; null where it has no bytes, or none in bound memory (kNone, kConstant). Everything
  // must be bound.
  std::byte* At(const Place& place) const;
  std::byte* arena() const { return arena_.value_or(nullptr); }

 private:
  using Address = std::optional<std::byte*>;  // empty: not bound; null: of no bytes

  static absl::Status Bind(std::string_view name, size_t bytes, BufferView view, Address* address);

  const Graph* graph_;
  const MemoryPlan* plan_;
  std::vector<Address> bound_inputs_, inputs_, outputs_;  // by graph input and output; inputs_: after MoveInput
  Address arena_;
};

}  // namespace onnxtrain
