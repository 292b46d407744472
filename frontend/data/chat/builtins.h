// Tables of the functions that templates may call: filters, tests, methods and global functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/data/chat/interpreter.h"

namespace onnxtrain::jinja {

// The arguments of one call in the order of the parameters.
class Bound {
 public:
  std::vector<std::optional<Value>> values;
  CallArguments rest;  // all arguments, or those after the parameters before "*"

  bool Has(size_t i) const { return i < values.size() && values[i].has_value(); }
  // Returns None for an argument that is not passed.
  Value Get(size_t i) const { return Has(i) ? *values[i] : Value(None()); }
  bool IsTrue(size_t i, bool otherwise = false) const { return Has(i) ? jinja::IsTrue(*values[i]) : otherwise; }
  absl::StatusOr<std::string> GetText(size_t i) const;
  absl::StatusOr<int64_t> GetInteger(size_t i, int64_t otherwise = 0) const;
};

struct Builtin {
  std::string_view name;
  // Names separated by spaces. "?" marks an optional parameter, "*" any number of further arguments.
  std::string_view parameters;
  absl::StatusOr<Value> (*run)(Interpreter& run, const Value& self, const Bound& arguments);
};

// Binds the arguments to the parameters and calls `run`. Errors name the function.
absl::StatusOr<Value> CallBuiltin(Interpreter& run, const Builtin& builtin, const Value& self, CallArguments arguments);
// Returns null if no row has this name.
const Builtin* FindBuiltin(std::span<const Builtin> table, std::string_view name);

std::span<const Builtin> TextFilters();
std::span<const Builtin> SequenceFilters();
std::span<const Builtin> Tests();
std::span<const Builtin> TextMethods();
std::span<const Builtin> ListMethods();
std::span<const Builtin> DictMethods();
std::span<const Builtin> GlobalFunctions();

// Returns the row as a function with `self` bound: a method, or a global function.
Value MakeFunction(const Builtin& builtin, Value self);

// Formats by printf-style rules of Python: "%s" % value.
absl::StatusOr<std::string> FormatPercent(Interpreter& run, std::string_view format, const Value& value);
// Formats as Python's str.format.
absl::StatusOr<std::string> FormatBraces(Interpreter& run, std::string_view format, const CallArguments& arguments);

struct JsonStyle {
  bool ascii = false, sort_keys = false;
  std::optional<std::string> indent = {};
  std::string comma = ", ", colon = ": ";
};
// Returns the result of Python's json.dumps.
absl::StatusOr<std::string> WriteJsonText(Interpreter& run, const Value& value, const JsonStyle& style);

}  // namespace onnxtrain::jinja
