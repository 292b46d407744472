#include "frontend/ops/op_classes.h"

#include <algorithm>
#include <initializer_list>

namespace onnxtrain {
namespace {

bool IsOneOf(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

}  // namespace

bool IsViewOrRepeat(std::string_view op) { return IsOneOf(op, {"Cast", "Reshape", "Transpose", "Expand"}); }

bool MovesElements(std::string_view op) {
  return IsViewOrRepeat(op) || IsOneOf(op, {"Pad", "Concat", "Slice", "Gather"});
}

bool MovesOrCombines(std::string_view op) { return MovesElements(op) || IsOneOf(op, {"Add", "Sub", "Mul", "Div"}); }

bool MultipliesByWeight(std::string_view op) {
  return IsOneOf(op, {"MatMul", "Conv", "ConvTranspose", "Lstm", "Gru", "Rnn"});
}

bool IsAlwaysNonNegative(std::string_view op) {
  return IsOneOf(op, {"Sigmoid", "Softmax", "Exp", "Relu", "Softplus", "Abs"});
}

bool KeepsNonNegative(std::string_view op) {
  return IsOneOf(op, {"Add", "Mul", "Div", "Reciprocal", "Sqrt", "Reshape", "Cast"});
}

bool GuardsDivisor(std::string_view op) {
  return IsOneOf(op, {"Add", "Max", "Clip", "Cast", "Reshape", "Where", "Expand"});
}

bool ReadsOnnxFactorOrTerm(std::string_view op_type) {
  return IsOneOf(op_type, {"Mul", "Div", "Add", "Sub", "Exp", "Softplus", "Sigmoid", "Tanh", "Expand", "Identity"});
}

bool PassesOnnxScores(std::string_view op_type) { return IsOneOf(op_type, {"MatMul", "Mul", "Div", "Add", "Where"}); }

bool KeepsOnnxClasses(std::string_view op_type) { return IsOneOf(op_type, {"Cast", "Identity", "Clip"}); }

}  // namespace onnxtrain
