// Implements operators, attributes and subscripts of values, as in Python.
#pragma once

#include <optional>
#include <string_view>

#include "frontend/data/chat/value.h"

namespace onnxtrain::jinja {

absl::StatusOr<Value> Add(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> Subtract(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> Multiply(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> Divide(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> FloorDivide(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> Modulo(Interpreter& run, const Value& a, const Value& b);

absl::StatusOr<Value> Equal(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> NotEqual(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> Less(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> LessEqual(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> Greater(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> GreaterEqual(Interpreter& run, const Value& a, const Value& b);
absl::StatusOr<Value> In(Interpreter& run, const Value& item, const Value& container);
absl::StatusOr<Value> NotIn(Interpreter& run, const Value& item, const Value& container);

absl::StatusOr<Value> Negate(const Value& a);
absl::StatusOr<Value> KeepSign(const Value& a);
absl::StatusOr<Value> Not(const Value& a);

// Return value.name, which prefers methods, and value[key], which prefers items; Undefined if there is neither.
absl::StatusOr<Value> GetAttribute(const Value& value, std::string_view name);
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);
// Each bound is None or an integer.
absl::StatusOr<Value> GetSlice(const Value& value, const Value& start, const Value& stop, const Value& step);

// Returns Markup as it is, and other values as Markup with the five special characters of HTML escaped.
Value Escape(const Value& value);

}  // namespace onnxtrain::jinja
