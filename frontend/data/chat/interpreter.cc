#include "frontend/data/chat/interpreter.h"

#include <algorithm>

#include "frontend/data/chat/builtins.h"

namespace onnxtrain::jinja {
namespace {

constexpr int64_t kBytesPerStep = 64;

}  // namespace

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  const auto it = std::ranges::find_if(variables, [&](const auto& variable) { return variable.first == name; });
  if (it != variables.end()) {
    it->second = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

Interpreter::Interpreter(const Dict& variables, const std::tm& now, const Limits& limits)
    : now_(now), limits_(limits), scope_(std::make_shared<Scope>()) {
  for (const auto& [name, value] : variables.items) {
    if (name.text() != nullptr) scope_->variables.emplace_back(*name.text(), value);
  }
}

Interpreter::~Interpreter() {
  for (const auto& object : objects_) object->Release();
}

void Interpreter::Track(std::shared_ptr<Object> object) {
  if (objects_.size() == objects_.capacity()) std::erase_if(objects_, [](const auto& o) { return o.use_count() == 1; });
  objects_.push_back(std::move(object));
}

absl::StatusOr<std::string> Interpreter::Run(const Body& body) {
  const InScope scope(*this, MakeScope());
  const auto flow = Execute(body);
  if (!flow.ok()) return OneLine(Annotate(flow.status(), StrCat("line ", error_line_, ": ")));
  return std::move(root_);
}

absl::Status Interpreter::CountSteps(int64_t steps) {
  steps_ += steps;
  return steps_ <= limits_.steps ? absl::OkStatus() : Invalid("the template takes more than ", limits_.steps, " steps");
}

absl::Status Interpreter::CheckBytes(int64_t bytes) const {
  if (bytes <= limits_.bytes) return absl::OkStatus();
  return Invalid("the template makes a text of more than ", limits_.bytes, " bytes");
}

absl::Status Interpreter::CountBytes(int64_t bytes) {
  RETURN_IF_ERROR(CheckBytes(bytes));
  return CountSteps(bytes / kBytesPerStep);
}

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression) {
  if (depth_ >= limits_.depth) return Invalid("the template nests calls more than ", limits_.depth, " deep");
  RETURN_IF_ERROR(CountSteps(1));
  ++depth_;
  absl::StatusOr<Value> value = expression.Evaluate(*this);
  --depth_;
  if (!value.ok() && error_line_ == 0) error_line_ = expression.line;
  return value;
}

absl::StatusOr<const Value*> Interpreter::View(const Expression& expression, Value* place) {
  if (const Value* value = expression.Find(*this)) {
    RETURN_IF_ERROR(CountSteps(1));
    return value;
  }
  ASSIGN_OR_RETURN(*place, Evaluate(expression));
  return place;
}

absl::StatusOr<Flow> Interpreter::Execute(const Body& body) {
  for (const auto& statement : body) {
    RETURN_IF_ERROR(CountSteps(1));
    if (++depth_ > limits_.depth) return Invalid("the template nests calls more than ", limits_.depth, " deep");
    const auto flow = statement->Execute(*this);
    --depth_;
    if (!flow.ok() && error_line_ == 0) error_line_ = statement->line;
    if (!flow.ok() || *flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<std::string> Interpreter::CaptureFrom(absl::FunctionRef<absl::Status()> write) {
  std::string text;
  std::string* const saved = std::exchange(output_, &text);
  const absl::Status status = write();
  output_ = saved;
  if (!status.ok()) return status;
  return text;
}

absl::StatusOr<std::string> Interpreter::Capture(const Body& body) {
  const InScope scope(*this, MakeScope());
  return CaptureFrom([&] { return Execute(body).status(); });
}

absl::Status Interpreter::Write(std::string_view text) {
  RETURN_IF_ERROR(CountSteps(static_cast<int64_t>(text.size()) / kBytesPerStep));
  output_->append(text);
  if (static_cast<int64_t>(output_->size()) <= limits_.bytes) return absl::OkStatus();
  return Invalid("the template writes more than ", limits_.bytes, " bytes");
}

absl::Status Interpreter::WriteGenerated(std::string_view text) {
  root_chars_ += CountChars(std::string_view(root_).substr(counted_bytes_));
  counted_bytes_ = root_.size();
  generated_.push_back({root_chars_, root_chars_ + CountChars(text)});
  return Write(text);
}

Value Interpreter::Lookup(const std::string& name) const {
  if (const Value* value = FindVariable(name)) return *value;
  if (const Builtin* function = FindBuiltin(GlobalFunctions(), name)) return MakeFunction(*function, None());
  return MakeUndefined(StrCat("'", Printable(name), "' is undefined"));
}

absl::Status Interpreter::Assign(const Target& target, Value value) {
  if (!target.attribute.empty()) return AssignAttribute(target, std::move(value));
  if (!target.is_tuple) {
    scope_->Set(target.name, std::move(value));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Values items, ReadItems(value));
  if (items.size() != target.items.size())
    return Invalid(items.size(), " values cannot be assigned to ", target.items.size(), " names");
  for (size_t i = 0; i < items.size(); ++i) RETURN_IF_ERROR(Assign(target.items[i], std::move(items[i])));
  return absl::OkStatus();
}

absl::Status Interpreter::AssignAttribute(const Target& target, Value value) {
  const Value holder = Lookup(target.name);
  auto* attributes = dynamic_cast<Namespace*>(holder.object());
  if (attributes == nullptr) return Invalid("an attribute of '", target.name, "', which is no namespace, is assigned");
  return attributes->Set(target.attribute, std::move(value));
}

absl::StatusOr<CallArguments> Interpreter::EvaluateArguments(const Arguments& arguments) {
  CallArguments out;
  for (const auto& argument : arguments.positional) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    out.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : arguments.named) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*argument));
    out.named.emplace_back(name, std::move(value));
  }
  if (arguments.all_positional != nullptr) {
    ASSIGN_OR_RETURN(const Value all, Evaluate(*arguments.all_positional));
    ASSIGN_OR_RETURN(const Values items, ReadItems(all));
    out.positional.insert(out.positional.end(), items.begin(), items.end());
  }
  if (arguments.all_named == nullptr) return out;
  ASSIGN_OR_RETURN(const Value all, Evaluate(*arguments.all_named));
  if (all.dict() == nullptr) return Invalid("the argument after ** is no mapping");
  for (const auto& [key, value] : all.dict()->items) {
    if (key.text() == nullptr) return Invalid("keywords must be strings");
    out.named.emplace_back(*key.text(), value);
  }
  return out;
}

absl::StatusOr<Value> Interpreter::Call(const Value& function, CallArguments arguments) {
  if (function.is_undefined()) return Invalid(function.reason());
  if (function.object() == nullptr) return Invalid("'", GetTypeName(function), "' object is not callable");
  // A copy, since the call may replace the variable that holds the function.
  return std::shared_ptr<Object>(function.shared_object())->Call(*this, std::move(arguments));
}

absl::StatusOr<Value> Interpreter::ApplyFilter(std::string_view name, const Value& operand, CallArguments arguments) {
  for (const auto table : {TextFilters(), SequenceFilters()}) {
    if (const Builtin* filter = FindBuiltin(table, name))
      return CallBuiltin(*this, *filter, operand, std::move(arguments));
  }
  return Invalid("there is no filter '", Printable(name), "'");
}

absl::StatusOr<bool> Interpreter::ApplyTest(std::string_view name, const Value& operand, CallArguments arguments) {
  const Builtin* test = FindBuiltin(Tests(), name);
  if (test == nullptr) return Invalid("there is no test '", Printable(name), "'");
  ASSIGN_OR_RETURN(const Value holds, CallBuiltin(*this, *test, operand, std::move(arguments)));
  return IsTrue(holds);
}

std::optional<absl::StatusOr<Value>> Namespace::GetAttribute(std::string_view name) {
  const Value* value = attributes_.FindText(name);
  return value == nullptr ? std::nullopt : std::optional<absl::StatusOr<Value>>(*value);
}

absl::Status Namespace::Set(std::string_view name, Value value) {
  if (name.starts_with('_')) return Invalid("attributes of namespaces must not begin with an underscore");
  return attributes_.Set(name, std::move(value));
}

}  // namespace onnxtrain::jinja
