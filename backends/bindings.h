// The memory that a compiled program is bound to. Shared by the backends.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "backends/collectives.h"
#include "backends/memory_plan.h"
#include "frontend/graph/graph.h"

namespace onnxtrain {

// Functions by which FetchValue reads the memory of a program.
struct ValueReader {
  std::function<const std::byte*(ValueId)> find;  // null: not computed yet
  std::function<absl::Status(std::byte* to, const std::byte* from, size_t bytes)> copy;
};

// Implements Program::Fetch: returns a copy of a value of the graph. Fails if the program was not compiled with
// keep_values, or if the value does not exist or has not been computed.
absl::StatusOr<HostTensor> FetchValue(const Graph& graph, const CompileOptions& options, ValueId value,
                                      const ValueReader& reader);

// Returns true if the node is a collective operator of more than one rank.
bool NeedsRanks(const Node& node);

// The groups of ranks that a program is bound to, by the name that its collective operators use.
class RankGroups {
 public:
  // Fails if a collective operator of the graph states another number of ranks. `ranks` must outlive its uses.
  absl::Status Bind(const Graph& graph, std::string_view name, Collectives* ranks);
  // Returns the group of a collective operator; null for other nodes and unbound groups.
  Collectives* Find(const Node& node) const;
  // Fails if a collective operator of more than one rank has no group.
  absl::Status CheckAllBound(const Graph& graph) const;

 private:
  std::map<std::string, Collectives*, std::less<>> groups_;
};

class Bindings {
 public:
  // The graph and its plan must outlive the bindings.
  Bindings(const Graph& graph, const MemoryPlan& plan);

  // Implement the functions of the same names in Program. Fail if the graph has no such input or output, or the buffer
  // is too small.
  absl::Status BindInput(std::string_view name, BufferView view);
  absl::Status BindOutput(std::string_view name, BufferView view);
  absl::Status BindArena(BufferView view) { return Bind("(arena)", plan_->arena_bytes, view, &arena_); }
  // Redirects an input to another address until it is bound again; null restores the bound address. Returns true if the
  // address has changed.
  bool MoveInput(size_t input, std::byte* address);

  // Fails if an input, an output or the arena is not bound; the error names it.
  absl::Status CheckAllBound() const;
  // Returns the address of a place; null if it has no bytes or is not in bound memory (kNone, kOffloaded, kConstant).
  // Everything must be bound.
  std::byte* At(const Place& place) const;
  std::byte* arena() const { return arena_.value_or(nullptr); }

 private:
  using Address = std::optional<std::byte*>;  // empty: not bound; null: a tensor without bytes

  static absl::Status Bind(std::string_view name, size_t bytes, BufferView view, Address* address);

  const Graph* graph_;
  const MemoryPlan* plan_;
  std::vector<Address> bound_inputs_, inputs_, outputs_;  // by graph input and output; inputs_: after MoveInput
  Address arena_;
};

}  // namespace onnxtrain
