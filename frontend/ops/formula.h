// Shorthand for gradients and decompositions, in addition to builder.h.
#pragma once

#include "frontend/ops/builder.h"
#include "frontend/ops/row.h"

namespace onnxtrain {

// Returns a scalar constant with the element type of x.
inline Val Number(Val x, double value) { return x.valid() ? x.b().Scalar(x.dtype(), value) : Val(); }
inline Val Unary(std::string_view op, Val x) { return x.valid() ? x.b().Op(op, {x}) : Val(); }
inline Val Binary(std::string_view op, Val x, Val y) { return x.valid() && y.valid() ? x.b().Op(op, {x, y}) : Val(); }
// Returns `value` where the condition is true, else 0, even where `value` is infinite or NaN.
inline Val Masked(Val condition, Val value) { return Where(condition, value, Number(value, 0)); }
inline Val Greater(Val x, double y) { return Greater(x, Number(x, y)); }
inline Val Less(Val x, double y) { return Less(x, Number(x, y)); }
inline Val Equal(Val x, double y) { return Equal(x, Number(x, y)); }

// The gradient of y = f(x): dy·D(x, y) with the derivative D.
template <auto D>
std::vector<Val> Chain(const GradContext& c) {
  return {c.dy() * D(c.x(0), c.y())};
}

// The gradient of y = f(a, b) with broadcasting: Da(dy, a, b, y) and Db(dy, a, b, y), each summed to its operand.
template <auto Da, auto Db>
std::vector<Val> BroadcastGrad(const GradContext& c) {
  const Val a = c.x(0), b = c.x(1);
  return {c.need(0) ? SumTo(Da(c.dy(), a, b, c.y()), a.shape()) : Val(),
          c.need(1) ? SumTo(Db(c.dy(), a, b, c.y()), b.shape()) : Val()};
}

}  // namespace onnxtrain
