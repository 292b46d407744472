// Implements operators, attributes and subscripts of values, as in Python.
#pragma once

#include <string_view>

#include "frontend/data/chat/interpreter.h"

namespace onnxtrain::jinja {

Value Add(Interpreter& run, const Value& a, const Value& b);
Value Subtract(Interpreter& run, const Value& a, const Value& b);
Value Multiply(Interpreter& run, const Value& a, const Value& b);
Value Divide(Interpreter& run, const Value& a, const Value& b);
Value FloorDivide(Interpreter& run, const Value& a, const Value& b);
Value Modulo(Interpreter& run, const Value& a, const Value& b);
// Joins the printed operands.
Value Concat(Interpreter& run, const Value& a, const Value& b);
Value Negate(Interpreter& run, const Value& a);

Value Equal(Interpreter& run, const Value& a, const Value& b);
Value NotEqual(Interpreter& run, const Value& a, const Value& b);
Value Less(Interpreter& run, const Value& a, const Value& b);
Value LessEqual(Interpreter& run, const Value& a, const Value& b);
Value Greater(Interpreter& run, const Value& a, const Value& b);
Value GreaterEqual(Interpreter& run, const Value& a, const Value& b);
Value In(Interpreter& run, const Value& item, const Value& container);
Value NotIn(Interpreter& run, const Value& item, const Value& container);

// Return value.name, which prefers methods, and value[key], which prefers items; Undefined if there is neither.
Value GetAttribute(Interpreter& run, const Value& value, std::string_view name);
Value GetItem(Interpreter& run, const Value& value, const Value& key);
// Each bound is None or an integer.
Value GetSlice(Interpreter& run, const Value& value, const Value& start, const Value& stop, const Value& step);

// Returns text that is marked as HTML if `self` is.
Value KeepMarkup(const Value& self, std::string text);
// Returns Markup as it is, and other values as Markup with the five special characters of HTML escaped.
Value Escape(const Value& value);

}  // namespace onnxtrain::jinja
