// The rows of the elementwise family, by file. Internal to frontend/ops.
#pragma once

#include <vector>

#include "frontend/ops/row.h"

namespace onnxtrain {

inline OpRow Simplified(OpRow row, SimplifyFn simplify) {
  row.simplify = simplify;
  return row;
}

std::vector<OpRow> UnaryRows();       // functions of one input without attributes; Cast, IsNaN, IsInf
std::vector<OpRow> ActivationRows();  // activations with attributes: LeakyRelu … Clip, Gelu, GeluGrad
std::vector<OpRow> BinaryRows();      // arithmetic, comparison, logic, Where

}  // namespace onnxtrain
