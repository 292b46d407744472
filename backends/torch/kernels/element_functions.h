// Lists the functions of single elements, as expressions of C++, and the reductions that generated kernels compute.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

struct ElementFunction {
  std::string_view op;
  // The result, from the operands a, b, c and the numbers p, q, r: of type `real`, or `bool` where the graph has that.
  std::string_view expression;
  // The attributes that p, q and r are, separated by blanks.
  std::string_view numbers = "";
  // ATen takes several kernels, or one that cannot write into given memory, so that a node alone is worth a kernel.
  bool alone = false;
};

// Returns the function of a node, or null if it has none. Element types are not looked at.
const ElementFunction* FindElementFunction(const Node& node);

struct ReductionFunction {
  std::string_view op;
  std::string_view reducer;  // of the prelude: "Sum"
  bool averages = false;     // divides by the number of elements

  bool sums() const { return reducer == "Sum"; }
};

// Returns null for reductions that no kernel is generated for, and other operators.
const ReductionFunction* FindReductionFunction(const Node& node);

// Returns the names of all operators that have an element function, for tests.
std::vector<std::string> ListElementOperators();

// Returns a number as a literal of C++ of type `real`, bit for bit.
std::string Literal(double value, bool wide);

// Returns "const real p = 0x1p-1f, q = …;", or "" without numbers.
std::string DefineNumbers(const ElementFunction& function, const Node& node, bool wide);

}  // namespace onnxtrain::aten
