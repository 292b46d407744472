#include "frontend/data/chat/builtins.h"

#include <algorithm>

namespace onnxtrain::jinja {
namespace {

struct Parameter {
  std::string_view name;
  bool optional = false;
};

// Splits lists of parameters such as "old new count? *".
std::vector<Parameter> SplitParameters(std::string_view text) {
  std::vector<Parameter> parameters;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    std::string_view name = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    parameters.push_back({name, optional});
  }
  return parameters;
}

absl::Status BindNamed(std::string_view function, const std::vector<Parameter>& parameters, CallArguments* arguments,
                       bool open, Bound* bound) {
  for (auto& [name, value] : arguments->named) {
    const auto it = std::ranges::find(parameters, name, &Parameter::name);
    if (it == parameters.end() && open) {
      bound->rest.named.emplace_back(name, std::move(value));
      continue;
    }
    if (it == parameters.end()) return Invalid(function, " has no parameter '", Printable(name), "'");
    std::optional<Value>& place = bound->values[it - parameters.begin()];
    if (place) return Invalid(function, " got two values for '", name, "'");
    place = std::move(value);
  }
  return absl::OkStatus();
}

// Returns true if the first parameter must be passed; required ones come first.
bool NeedsArguments(std::string_view parameters) {
  const std::string_view first = parameters.substr(0, parameters.find(' '));
  return !first.empty() && first != "*" && !first.ends_with('?');
}

absl::StatusOr<Bound> Bind(const Builtin& builtin, CallArguments arguments) {
  if (arguments.positional.empty() && arguments.named.empty() && !NeedsArguments(builtin.parameters)) return Bound();
  std::vector<Parameter> parameters = SplitParameters(builtin.parameters);
  const bool open = !parameters.empty() && parameters.back().name == "*";
  if (open) parameters.pop_back();
  Bound bound;
  bound.values.resize(parameters.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < parameters.size()) {
      bound.values[i] = std::move(arguments.positional[i]);
    } else if (open) {
      bound.rest.positional.push_back(std::move(arguments.positional[i]));
    } else {
      return Invalid(builtin.name, " takes at most ", parameters.size(), " argument(s)");
    }
  }
  RETURN_IF_ERROR(BindNamed(builtin.name, parameters, &arguments, open, &bound));
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!bound.Has(i) && !parameters[i].optional) return Invalid(builtin.name, " needs '", parameters[i].name, "'");
  }
  return bound;
}

// A row of a table, bound to a value as its method.
class Function : public Object {
 public:
  Function(const Builtin& builtin, Value self) : builtin_(builtin), self_(std::move(self)) {}
  std::string_view type_name() const override { return "function"; }
  Extent extent() const override {
    const Extent self = GetExtent(self_);
    return {.depth = self.depth + 1, .weight = self.weight + 1};
  }
  absl::StatusOr<Value> Call(Interpreter& run, CallArguments&& arguments) override {
    return CallBuiltin(run, builtin_, self_, std::move(arguments));
  }

 private:
  const Builtin& builtin_;
  Value self_;
};

}  // namespace

absl::StatusOr<std::string> Bound::GetText(size_t i) const {
  const Value value = Get(i);
  if (value.text() != nullptr) return *value.text();
  return Invalid("a string is expected, not '", GetTypeName(value), "'");
}

absl::StatusOr<int64_t> Bound::GetInteger(size_t i, int64_t otherwise) const {
  if (!Has(i)) return otherwise;
  if (const auto whole = values[i]->integer()) return *whole;
  return Invalid("an integer is expected, not '", GetTypeName(*values[i]), "'");
}

absl::StatusOr<Value> CallBuiltin(Interpreter& run, const Builtin& builtin, const Value& self,
                                  CallArguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bind(builtin, std::move(arguments)));
  if (self.sequence() != nullptr) RETURN_IF_ERROR(run.CountSteps(std::ssize(self.sequence()->items)));
  if (self.text() != nullptr) RETURN_IF_ERROR(run.CountBytes(std::ssize(*self.text())));
  auto result = builtin.run(run, self, bound);
  if (absl::IsInvalidArgument(result.status())) return Annotate(result.status(), StrCat(builtin.name, ": "));
  if (!result.ok()) return result;
  if (result->text() != nullptr) RETURN_IF_ERROR(run.CountBytes(std::ssize(*result->text())));
  if (result->sequence() != nullptr) RETURN_IF_ERROR(run.CountSteps(std::ssize(result->sequence()->items)));
  return result;
}

const Builtin* FindBuiltin(std::span<const Builtin> table, std::string_view name) {
  const auto it = std::ranges::find(table, name, &Builtin::name);
  return it == table.end() ? nullptr : &*it;
}

Value MakeFunction(const Builtin& builtin, Value self) {
  return std::shared_ptr<Object>(std::make_shared<Function>(builtin, std::move(self)));
}

}  // namespace onnxtrain::jinja
