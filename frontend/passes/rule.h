// Rules of simplify and their matchers.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// A node that may be replaced. Its inputs are values of the new graph, already simplified.
struct NodeContext {
  Builder& b;
  const Node& node;     // of the old graph
  std::vector<Val> in;  // invalid where absent
  const Type& out;      // of output 0

  const Attrs& attrs() const { return node.attrs; }
  // Expands v to the type of the node's output; invalid if it does not broadcast.
  Val Fit(Val v) const;
};

// Returns the replacement of the node's single output, or an invalid Val.
struct Rule {
  std::string_view op;  // "": any
  Val (*apply)(const NodeContext&);
};

std::span<const Rule> ArithmeticRules();
std::span<const Rule> ShapeRules();

// Returns input i of the producer of v if that is an `op`, else an invalid Val.
Val MatchInput(Val v, std::string_view op, size_t i = 0);
// Returns the attributes of the producer of v by value, since appending moves nodes. Empty for a graph input.
Attrs ProducerAttrs(Val v);
// Returns the value of all elements of a splat constant, also through an Expand.
std::optional<double> FindSplat(const Graph& graph, ValueId v);
inline std::optional<double> FindSplat(Val v) { return v ? FindSplat(v.b().graph(), v.id()) : std::nullopt; }
bool IsSplat(Val v, double value);

}  // namespace onnxtrain
