// What a rule of simplify sees, and what rules share.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/ops/builder.h"

namespace onnxtrain {

// A node that may be replaced. Its inputs are values of the new graph, already simplified.
struct Site {
  Builder& b;
  const Node& node;     // of the old graph
  std::vector<Val> in;  // invalid where absent
  Type out;             // of output 0

  const Attrs& attrs() const { return node.attrs; }
  // v as the node's output, if broadcasting makes it so; else invalid.
  Val Fit(Val v) const;
};

// The value that replaces the node's single output, or an invalid Val.
struct Rule {
  std::string_view op;  // "": any
  Val (*apply)(const Site&);
};

std::span<const Rule> ArithmeticRules();
std::span<const Rule> ShapeRules();

// If v is computed by that operator, its input i; else invalid.
Val InputOf(Val v, std::string_view op, size_t i = 0);
// The attributes of the node behind v, by value: appending moves nodes. Empty for a graph input.
Attrs AttrsOf(Val v);
// The one number that all elements of a constant are, also behind an Expand.
std::optional<double> SplatOf(const Graph& graph, ValueId v);
inline std::optional<double> SplatOf(Val v) { return v ? SplatOf(v.b().graph(), v.id()) : std::nullopt; }
bool IsSplat(Val v, double value);

}  // namespace onnxtrain
