// Lists the functions of single elements, as expressions of C++, and the reductions that generated kernels compute.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/graph/graph.h"

namespace onnxtrain::aten {

struct ElementFunction {
  std::string_view op;
  // C++ expression of the result in the operands a, b, c and the numbers p, q, r. Its type is `real`, or `bool` if the
  // output is bool.
  std::string_view expression;
  // Names of the attributes whose values are p, q and r, separated by blanks.
  std::string_view numbers = "";
  // True if even a single node is replaced, because ATen launches several kernels or cannot write to given memory.
  bool alone = false;
};

// Returns the function of a node, or null if it has none. Does not check element types.
const ElementFunction* FindElementFunction(const Node& node);

struct ReductionFunction {
  std::string_view op;
  std::string_view reducer;  // name in the prelude: "Sum"
  bool averages = false;     // divides by the number of elements

  bool sums() const { return reducer == "Sum"; }
};

// Returns the function of a reduction, or null for other operators and reductions that no kernel is generated for.
const ReductionFunction* FindReductionFunction(const Node& node);

// Returns the names of all operators that have an element function, for tests.
std::vector<std::string> ListElementOperators();

// Returns a number as a literal of C++ of type `real`, bit for bit.
std::string Literal(double value, bool wide);

// Returns "const real p = 0x1p-1f, q = …;", or "" without numbers.
std::string DefineNumbers(const ElementFunction& function, const Node& node, bool wide);

}  // namespace onnxtrain::aten
