// The functions of single elements that generated kernels compute, as expressions of C++.
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

// Returns the names of all operators that have one, for tests.
std::vector<std::string> ListElementOperators();

// Returns a number as a literal of C++ of type `real`, bit for bit.
std::string Literal(double value, bool wide);

// Returns "const real p = 0x1p-1f, q = …;", or "" without numbers.
std::string DefineNumbers(const ElementFunction& function, const Node& node, bool wide);

}  // namespace onnxtrain::aten
