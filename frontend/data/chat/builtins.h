// Tables of the functions that templates may call: filters, tests, methods and global functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/data/chat/interpreter.h"

namespace onnxtrain::jinja {

// One call: the value before the point or the bar, and the arguments in the order of the parameters.
struct BuiltinCall {
  Interpreter& run;
  const Value& self;
  std::vector<const Value*> values = {};  // null: not passed
  CallArguments rest = {};                // the arguments that "*" takes

  bool Has(size_t i) const { return i < values.size() && values[i] != nullptr; }
  // Returns None for an argument that is not passed.
  const Value& Get(size_t i) const;
  bool IsTrue(size_t i) const { return Has(i) && jinja::IsTrue(*values[i]); }
  // Fail if the argument has another type.
  std::string_view Text(size_t i) const;
  int64_t Integer(size_t i, int64_t otherwise = 0) const;

  // Returns the text of `self`, for functions that are called for texts only.
  const std::string& text() const { return *self.text(); }
  Values ReadSelf() const { return run.Get(ReadItems(self)); }
};

struct Builtin {
  std::string_view name;
  // Names separated by spaces. "?" marks an optional parameter, "*" any number of further arguments.
  std::string_view parameters;
  Value (*run)(const BuiltinCall& call);
  bool prints_self = false;  // a filter on texts, which prints other values first
};

// Binds the arguments to the parameters and calls the function. Errors name it.
Value CallBuiltin(Interpreter& run, const Builtin& builtin, const Value& self, const CallArguments& arguments);

// Return null if there is none of this name.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindMethod(const Value& value, std::string_view name);
const Builtin* FindGlobal(std::string_view name);
bool IsDictMethod(std::string_view name);

// Returns the function with `self` bound: a method, or a global function.
Value MakeFunction(const Builtin& builtin, Value self);

// The rows by files.
std::span<const Builtin> TextMethods();
std::span<const Builtin> TextFilters();
std::span<const Builtin> NumberFilters();
std::span<const Builtin> SequenceFilters();

// Formats by printf-style rules of Python: "%s" % value.
Value FormatPercent(Interpreter& run, const Value& text, const Value& value);
// Formats as Python's str.format.
Value FormatBraces(const BuiltinCall& call);
// Writes `self` as Python's json.dumps.
Value ToJson(const BuiltinCall& call);

// Strips the given characters, by default white space.
enum StripSides : uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };
std::string_view Strip(std::string_view text, std::optional<std::string_view> chars = {}, StripSides sides = kBoth);

}  // namespace onnxtrain::jinja
