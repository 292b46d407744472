// Classes of operators that analyses of whole graphs ask for: which values keep their numbers, their sign or their
// classes on the way through an operator. Names of canonical operators, or of ONNX operators where a function says so.
#pragma once

#include <string_view>

namespace onnxtrain {

// One output, which has the elements of input 0: cast, repeated or in another order.
bool IsViewOrRepeat(std::string_view op);
// An output of elements of its inputs, cast; padding may be added.
bool MovesElements(std::string_view op);
// MovesElements, sums and products of two operands.
bool MovesOrCombines(std::string_view op);
// Products with a weight: matrix products, convolutions, recurrent layers.
bool MultipliesByWeight(std::string_view op);

// At least 0 whatever the input is.
bool IsAlwaysNonNegative(std::string_view op);
// At least 0 where every input is.
bool KeepsNonNegative(std::string_view op);
// Guards a divisor against 0: a small term, a lower bound, or a form of the same numbers.
bool GuardsDivisor(std::string_view op);

// ONNX operators that read a number as a factor, as a term or through a function of one argument, so that it may be a
// parameter; others read it as an attribute of their formula.
bool ReadsOnnxFactorOrTerm(std::string_view op_type);
// ONNX operators, besides views, that attention scores pass on the way to their softmax.
bool PassesOnnxScores(std::string_view op_type);
// ONNX operators, besides views, of which class c of the output is class c of input 0.
bool KeepsOnnxClasses(std::string_view op_type);

}  // namespace onnxtrain
