#include <algorithm>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"

namespace onnxtrain::jinja {
namespace {

// The variable `loop`. Tests items lazily, since the condition may read values that the body changes.
class LoopState : public Object {
 public:
  LoopState(Interpreter& run, const ForStatement& statement, Values items)
      : run_(run), statement_(statement), scope_(run.scope()), items_(std::move(items)) {
    if (statement.condition == nullptr) accepted_.swap(items_);
  }

  std::string_view type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return false; }
  void Release() override {
    scope_ = nullptr;
    items_.clear();
    accepted_.clear();
  }
  std::string Print() const override {
    return StrCat("<LoopContext ", index_ + 1, "/", std::max(items_.size(), accepted_.size()), ">");
  }

  // Advances to the next item. Returns null after the last.
  absl::StatusOr<const Value*> Next() {
    ++index_;
    RETURN_IF_ERROR(Accept(index_ + 1));
    return index_ < std::ssize(accepted_) ? &accepted_[index_] : nullptr;
  }

  std::optional<absl::StatusOr<Value>> GetAttribute(std::string_view name) override;

 private:
  struct AttributeRow {
    std::string_view name;
    absl::StatusOr<Value> (LoopState::*get)();
  };

  // Tests items until this number of them has met the condition.
  absl::Status Accept(int64_t count) {
    while (std::ssize(accepted_) < count && tested_ < items_.size()) {
      const Value& item = items_[tested_++];
      ASSIGN_OR_RETURN(const bool keep, Test(item));
      if (keep) accepted_.push_back(item);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Test(const Value& item) {
    const Interpreter::InScope outer(run_, scope_);
    const Interpreter::InScope inner(run_, run_.MakeScope());
    RETURN_IF_ERROR(run_.Assign(statement_.target, item));
    ASSIGN_OR_RETURN(const Value holds, run_.Evaluate(*statement_.condition));
    return IsTrue(holds);
  }

  absl::StatusOr<Value> CountAll() {
    RETURN_IF_ERROR(Accept(std::ssize(items_)));
    return Value(static_cast<int64_t>(accepted_.size()));
  }
  absl::StatusOr<Value> CountRest(int64_t from) {
    ASSIGN_OR_RETURN(const Value all, CountAll());
    return Value(*all.integer() - index_ + from);
  }
  absl::StatusOr<Value> GetNext() {
    RETURN_IF_ERROR(Accept(index_ + 2));
    return index_ + 1 < std::ssize(accepted_) ? accepted_[index_ + 1] : MakeUndefined("there is no next item");
  }
  absl::StatusOr<Value> GetPrevious() {
    return index_ > 0 ? accepted_[index_ - 1] : MakeUndefined("there is no previous item");
  }
  absl::StatusOr<Value> IsLast() {
    RETURN_IF_ERROR(Accept(index_ + 2));
    return Value(index_ + 1 >= std::ssize(accepted_));
  }
  absl::StatusOr<Value> IsFirst() { return Value(index_ == 0); }
  absl::StatusOr<Value> GetIndex() { return Value(index_ + 1); }
  absl::StatusOr<Value> GetIndex0() { return Value(index_); }
  absl::StatusOr<Value> GetReverseIndex() { return CountRest(0); }
  absl::StatusOr<Value> GetReverseIndex0() { return CountRest(-1); }

  Interpreter& run_;
  const ForStatement& statement_;
  std::shared_ptr<Scope> scope_;  // around the loop
  Values items_, accepted_;       // without a condition, all are accepted
  size_t tested_ = 0;
  int64_t index_ = -1;
};

std::optional<absl::StatusOr<Value>> LoopState::GetAttribute(std::string_view name) {
  static constexpr AttributeRow kAttributes[] = {{"index", &LoopState::GetIndex},
                                                 {"index0", &LoopState::GetIndex0},
                                                 {"first", &LoopState::IsFirst},
                                                 {"last", &LoopState::IsLast},
                                                 {"length", &LoopState::CountAll},
                                                 {"revindex", &LoopState::GetReverseIndex},
                                                 {"revindex0", &LoopState::GetReverseIndex0},
                                                 {"previtem", &LoopState::GetPrevious},
                                                 {"nextitem", &LoopState::GetNext}};
  const auto* row = std::ranges::find(kAttributes, name, &AttributeRow::name);
  if (row == std::end(kAttributes)) return std::nullopt;
  return (this->*row->get)();
}

// A macro with the scope of its definition.
class Macro : public Object {
 public:
  Macro(const MacroStatement& definition, std::shared_ptr<Scope> scope)
      : definition_(definition), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "Macro"; }
  void Release() override { scope_ = nullptr; }

  absl::StatusOr<Value> Call(Interpreter& run, CallArguments&& arguments) override {
    const auto& parameters = definition_.parameters;
    if (arguments.positional.size() > parameters.size())
      return Invalid("macro '", definition_.name, "' takes not more than ", parameters.size(), " argument(s)");
    const Interpreter::InScope outer(run, scope_);
    const auto local = run.MakeScope();
    const Interpreter::InScope inner(run, local);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool positional = i < arguments.positional.size();
      std::optional<Value> value = positional ? arguments.positional[i] : TakeNamed(parameters[i].first, &arguments);
      if (!value) {
        ASSIGN_OR_RETURN(value, GetDefault(run, i));
      }
      local->Set(parameters[i].first, *std::move(value));
    }
    if (!arguments.named.empty())
      return Invalid("macro '", definition_.name, "' takes no keyword argument '", Printable(arguments.named[0].first),
                     "'");
    ASSIGN_OR_RETURN(std::string text, run.Capture(definition_.body));
    return Value(std::move(text));
  }

 private:
  static std::optional<Value> TakeNamed(std::string_view name, CallArguments* arguments) {
    auto& named = arguments->named;
    const auto it = std::ranges::find_if(named, [&](const auto& argument) { return argument.first == name; });
    if (it == named.end()) return std::nullopt;
    Value value = std::move(it->second);
    named.erase(it);
    return value;
  }

  absl::StatusOr<Value> GetDefault(Interpreter& run, size_t parameter) const {
    const auto& [name, otherwise] = definition_.parameters[parameter];
    if (otherwise != nullptr) return run.Evaluate(*otherwise);
    return MakeUndefined(StrCat("parameter '", name, "' was not provided"));
  }

  const MacroStatement& definition_;
  std::shared_ptr<Scope> scope_;
};

absl::StatusOr<Value> ApplyFilters(Interpreter& run, Value value,
                                   const std::vector<std::unique_ptr<const FilterExpression>>& filters) {
  for (const auto& filter : filters) {
    ASSIGN_OR_RETURN(value, filter->Apply(run, value));
  }
  return value;
}

}  // namespace

absl::StatusOr<Flow> TextStatement::Execute(Interpreter& run) const {
  RETURN_IF_ERROR(run.Write(text));
  return Flow::kNext;
}

absl::StatusOr<Flow> PrintStatement::Execute(Interpreter& run) const {
  Value place;
  ASSIGN_OR_RETURN(const Value* printed, run.View(*value, &place));
  if (const std::string* plain = printed->text()) {
    RETURN_IF_ERROR(run.Write(*plain));
  } else {
    RETURN_IF_ERROR(run.Write(Print(*printed)));
  }
  return Flow::kNext;
}

absl::StatusOr<Flow> IfStatement::Execute(Interpreter& run) const {
  for (const auto& [condition, body] : branches) {
    Value place;
    ASSIGN_OR_RETURN(const Value* holds, run.View(*condition, &place));
    if (IsTrue(*holds)) return run.Execute(body);
  }
  return run.Execute(otherwise);
}

absl::StatusOr<Flow> ForStatement::Execute(Interpreter& run) const {
  Value place;
  ASSIGN_OR_RETURN(const Value* over, run.View(*items, &place));
  ASSIGN_OR_RETURN(Values values, ReadItems(*over));
  RETURN_IF_ERROR(run.CountSteps(static_cast<int64_t>(values.size())));
  const auto loop = run.Make<LoopState>(run, *this, std::move(values));
  std::shared_ptr<Scope> local;
  bool completed = false;  // an iteration, as `otherwise` is for jinja2
  while (true) {
    ASSIGN_OR_RETURN(const Value* item, loop->Next());
    if (item == nullptr) break;
    if (local.use_count() != 1) local = run.MakeScope();  // none yet, or a macro keeps it
    local->variables.clear();
    const Interpreter::InScope inner(run, local);
    RETURN_IF_ERROR(run.Assign(target, *item));
    local->Set("loop", std::shared_ptr<Object>(loop));
    ASSIGN_OR_RETURN(const Flow flow, run.Execute(body));
    if (flow == Flow::kBreak) break;
    completed |= flow == Flow::kNext;
  }
  if (completed || otherwise.empty()) return Flow::kNext;
  const Interpreter::InScope inner(run, run.MakeScope());
  return run.Execute(otherwise);
}

absl::StatusOr<Flow> SetStatement::Execute(Interpreter& run) const {
  ASSIGN_OR_RETURN(Value assigned, run.Evaluate(*value));
  RETURN_IF_ERROR(run.Assign(target, std::move(assigned)));
  return Flow::kNext;
}

absl::StatusOr<Flow> SetBlockStatement::Execute(Interpreter& run) const {
  ASSIGN_OR_RETURN(std::string text, run.Capture(body));
  ASSIGN_OR_RETURN(Value filtered, ApplyFilters(run, std::move(text), filters));
  RETURN_IF_ERROR(run.Assign(target, std::move(filtered)));
  return Flow::kNext;
}

absl::StatusOr<Flow> FilterStatement::Execute(Interpreter& run) const {
  ASSIGN_OR_RETURN(std::string text, run.Capture(body));
  ASSIGN_OR_RETURN(const Value filtered, ApplyFilters(run, std::move(text), filters));
  if (filtered.text() == nullptr) return Invalid("the filters of a block must return text");
  RETURN_IF_ERROR(run.Write(*filtered.text()));
  return Flow::kNext;
}

absl::StatusOr<Flow> WithStatement::Execute(Interpreter& run) const {
  const auto local = run.MakeScope();
  for (const auto& [name, expression] : values) {
    ASSIGN_OR_RETURN(Value value, run.Evaluate(*expression));
    const Interpreter::InScope inner(run, local);
    RETURN_IF_ERROR(run.Assign(name, std::move(value)));
  }
  const Interpreter::InScope inner(run, local);
  return run.Execute(body);
}

absl::StatusOr<Flow> MacroStatement::Execute(Interpreter& run) const {
  run.scope()->Set(name, std::shared_ptr<Object>(run.Make<Macro>(*this, run.scope())));
  return Flow::kNext;
}

absl::StatusOr<Flow> GenerationStatement::Execute(Interpreter& run) const {
  ASSIGN_OR_RETURN(const std::string text, run.Capture(body));
  RETURN_IF_ERROR(run.WriteGenerated(text));
  return Flow::kNext;
}

absl::StatusOr<Flow> FlowStatement::Execute(Interpreter& /*run*/) const { return flow; }

}  // namespace onnxtrain::jinja
