// Evaluates the nodes of a tree.
#include <algorithm>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"

namespace onnxtrain::jinja {
namespace {

// The variable `loop`. Tests items lazily, since the condition may read values that the body changes.
class LoopState : public Object {
 public:
  LoopState(Interpreter& run, const Node& target, const Node* condition, Values items)
      : run_(run), target_(target), condition_(condition), scope_(run.scope()), items_(std::move(items)) {
    if (condition == nullptr) accepted_.swap(items_);
  }

  std::string_view type_name() const override { return "LoopContext"; }
  void Release() override {
    scope_ = nullptr;
    items_.clear();
    accepted_.clear();
  }
  std::string Print() const override {
    return StrCat("<LoopContext ", index_ + 1, "/", std::max(items_.size(), accepted_.size()), ">");
  }

  // Advances to the next item. Returns null after the last.
  const Value* Next() {
    ++index_;
    return Has(index_) ? &accepted_[index_] : nullptr;
  }

  std::optional<Value> GetAttribute(std::string_view name) override;

 private:
  // Tests items until one has this index, or all are tested. Returns whether one has.
  bool Has(int64_t index) {
    while (std::ssize(accepted_) <= index && tested_ < items_.size() && !run_.failed()) {
      const Value& item = items_[tested_++];
      const Interpreter::InScope outer(run_, scope_);
      const Interpreter::InScope inner(run_);
      run_.Assign(target_, item);
      if (IsTrue(run_.Evaluate(*condition_))) accepted_.push_back(item);
    }
    return index < std::ssize(accepted_) && !run_.failed();
  }
  int64_t CountAll() {
    Has(std::ssize(items_) - 1);
    return std::ssize(accepted_);
  }

  Interpreter& run_;
  const Node& target_;
  const Node* condition_;         // may be null
  std::shared_ptr<Scope> scope_;  // around the loop
  Values items_, accepted_;       // without a condition, all are accepted
  size_t tested_ = 0;
  int64_t index_ = -1;
};

std::optional<Value> LoopState::GetAttribute(std::string_view name) {
  if (name == "index") return index_ + 1;
  if (name == "index0") return index_;
  if (name == "first") return index_ == 0;
  if (name == "last") return !Has(index_ + 1);
  if (name == "length") return CountAll();
  if (name == "revindex") return CountAll() - index_;
  if (name == "revindex0") return CountAll() - index_ - 1;
  if (name == "previtem") return index_ > 0 ? accepted_[index_ - 1] : Value::MakeUndefined("there is no previous item");
  if (name != "nextitem") return std::nullopt;
  return Has(index_ + 1) ? accepted_[index_ + 1] : Value::MakeUndefined("there is no next item");
}

// A macro with the scope of its definition.
class Macro : public Object {
 public:
  Macro(const Node& definition, std::shared_ptr<Scope> scope) : definition_(definition), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "Macro"; }
  void Release() override { scope_ = nullptr; }

  Value Call(Interpreter& run, CallArguments arguments) override {
    const size_t parameters = definition_.children.size() - 1;
    if (arguments.positional.size() > parameters)
      return run.Fail("macro '", definition_.text, "' takes not more than ", parameters, " argument(s)");
    const Interpreter::InScope outer(run, scope_);
    const auto local = run.MakeScope();
    const Interpreter::InScope inner(run, local);
    for (size_t i = 0; i < parameters; ++i) {
      const Node& parameter = definition_.children[i];
      const bool positional = i < arguments.positional.size();
      local->Set(parameter.text, positional ? arguments.positional[i] : TakeNamed(run, parameter, &arguments.named));
    }
    if (!arguments.named.empty())
      return run.Fail("macro '", definition_.text, "' takes no keyword argument '", Printable(arguments.named[0].first),
                      "'");
    return run.Capture(definition_.children.back());
  }

 private:
  // Returns the keyword argument of a parameter, or its default.
  static Value TakeNamed(Interpreter& run, const Node& parameter, std::vector<std::pair<std::string, Value>>* named) {
    const auto it =
        std::ranges::find_if(*named, [&](const auto& argument) { return argument.first == parameter.text; });
    if (it != named->end()) {
      Value value = std::move(it->second);
      named->erase(it);
      return value;
    }
    if (!parameter.children.empty()) return run.Evaluate(parameter.children[0]);
    return Value::MakeUndefined(StrCat("parameter '", parameter.text, "' was not provided"));
  }

  const Node& definition_;
  std::shared_ptr<Scope> scope_;
};

// The value of an operand, which is copied only if it is computed.
class Operand {
 public:
  Operand(Interpreter& run, const Node& node) : value_(run.View(node, &place_)) {}
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  const Value& operator*() const { return *value_; }
  const Value* operator->() const { return value_; }

 private:
  Value place_;
  const Value* value_;
};

// Evaluates the children after the first one, the function or operand, as the arguments of a call.
CallArguments EvaluateArguments(Interpreter& run, const Node& node) {
  CallArguments out;
  for (size_t i = 1; i < node.children.size(); ++i) {
    const std::string& label = node.children[i].label;
    Value value = run.Evaluate(node.children[i]);
    if (label.empty()) {
      out.positional.push_back(std::move(value));
    } else if (label == "*") {
      const Values items = run.Get(ReadItems(value));
      out.positional.insert(out.positional.end(), items.begin(), items.end());
    } else if (label != "**") {
      out.named.emplace_back(label, std::move(value));
    } else if (value.dict() != nullptr) {
      out.named.insert(out.named.end(), value.dict()->items.begin(), value.dict()->items.end());
    } else {
      run.Fail("the argument after ** is no mapping");
    }
  }
  return out;
}

Value ApplyBuiltin(Interpreter& run, const Node& node, std::string_view kind) {
  const Operand operand(run, node.children[0]);
  const CallArguments arguments = EvaluateArguments(run, node);
  if (node.builtin != nullptr) return CallBuiltin(run, *node.builtin, *operand, arguments);
  return run.Fail("there is no ", kind, " '", Printable(node.text), "'");
}

Values EvaluateChildren(Interpreter& run, const Node& node) {
  Values values;
  for (const Node& child : node.children) values.push_back(run.Evaluate(child));
  return values;
}

}  // namespace

Value EvaluateLiteral(Interpreter& /*run*/, const Node& node) { return node.value; }

Value EvaluateName(Interpreter& run, const Node& node) {
  if (const Value* value = run.FindVariable(node.text)) return *value;
  if (const Builtin* function = FindGlobal(node.text)) return MakeFunction(*function, None());
  return Value::MakeUndefined(StrCat("'", Printable(node.text), "' is undefined"));
}

Value EvaluateList(Interpreter& run, const Node& node) { return run.MakeList(EvaluateChildren(run, node)); }
Value EvaluateTuple(Interpreter& run, const Node& node) { return run.MakeTuple(EvaluateChildren(run, node)); }

Value EvaluateDict(Interpreter& run, const Node& node) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i < node.children.size(); i += 2) {
    const Value key = run.Evaluate(node.children[i]);
    Value value = run.Evaluate(node.children[i + 1]);
    const std::optional<std::string> name = MakeKey(key);
    if (!name) return run.Fail("the key of a mapping is '", GetTypeName(key), "', expected a string or an integer");
    run.Check(dict->Set(*name, std::move(value)));
  }
  return dict;
}

Value EvaluateNot(Interpreter& run, const Node& node) { return !IsTrue(*Operand(run, node.children[0])); }
Value EvaluateNegation(Interpreter& run, const Node& node) { return Negate(run, *Operand(run, node.children[0])); }

Value EvaluateBinary(Interpreter& run, const Node& node) {
  const Operand a(run, node.children[0]), b(run, node.children[1]);
  return run.failed() ? Value() : node.apply(run, *a, *b);
}

Value EvaluateAnd(Interpreter& run, const Node& node) {
  Value value = run.Evaluate(node.children[0]);
  return IsTrue(value) ? run.Evaluate(node.children[1]) : value;
}

Value EvaluateOr(Interpreter& run, const Node& node) {
  Value value = run.Evaluate(node.children[0]);
  return IsTrue(value) ? value : run.Evaluate(node.children[1]);
}

Value EvaluateConditional(Interpreter& run, const Node& node) {
  if (IsTrue(*Operand(run, node.children[0]))) return run.Evaluate(node.children[1]);
  if (node.children.size() > 2) return run.Evaluate(node.children[2]);
  return Value::MakeUndefined("the inline if evaluated to false and has no else");
}

Value EvaluateAttribute(Interpreter& run, const Node& node) {
  return GetAttribute(run, *Operand(run, node.children[0]), *node.children[1].value.text());
}

Value EvaluateItem(Interpreter& run, const Node& node) {
  const Operand object(run, node.children[0]), key(run, node.children[1]);
  return GetItem(run, *object, *key);
}

Value EvaluateSlice(Interpreter& run, const Node& node) {
  const Operand object(run, node.children[0]), start(run, node.children[1]), stop(run, node.children[2]),
      step(run, node.children[3]);
  Value slice = GetSlice(run, *object, *start, *stop, *step);
  run.CountBytes(GetLength(slice).value_or(0));
  return slice;
}

Value EvaluateCall(Interpreter& run, const Node& node) {
  const Value function = run.Evaluate(node.children[0]);
  return run.Call(function, EvaluateArguments(run, node));
}

Value EvaluateFilter(Interpreter& run, const Node& node) { return ApplyBuiltin(run, node, "filter"); }
Value EvaluateTest(Interpreter& run, const Node& node) { return ApplyBuiltin(run, node, "test"); }
Value EvaluateCapture(Interpreter& run, const Node& node) { return run.Capture(node.children[0]); }

Value ExecuteBody(Interpreter& run, const Node& node) {
  for (const Node& statement : node.children) {
    run.Evaluate(statement);
    if (run.failed() || run.flow != Interpreter::Flow::kNext) break;
  }
  return {};
}

Value ExecuteText(Interpreter& run, const Node& node) {
  run.Write(node.text);
  return {};
}

Value ExecutePrint(Interpreter& run, const Node& node) {
  const Operand printed(run, node.children[0]);
  if (printed->text() != nullptr) {
    run.Write(*printed->text());
  } else {
    run.Write(Print(*printed));
  }
  return {};
}

Value ExecuteIf(Interpreter& run, const Node& node) {
  for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
    if (IsTrue(*Operand(run, node.children[i]))) return run.Evaluate(node.children[i + 1]);
  }
  return run.Evaluate(node.children.back());
}

Value ExecuteFor(Interpreter& run, const Node& node) {
  const Node &target = node.children[0], &body = node.children[2], &otherwise = node.children[3];
  Values items = run.Get(ReadItems(*Operand(run, node.children[1])));
  if (!run.CountSteps(std::ssize(items))) return {};
  const Node* condition = node.children.size() > 4 ? &node.children[4] : nullptr;
  const auto loop = run.Make<LoopState>(run, target, condition, std::move(items));
  std::shared_ptr<Scope> local;
  bool completed = false;  // an iteration, as `otherwise` is for jinja2
  while (const Value* item = loop->Next()) {
    if (local.use_count() != 1) local = run.MakeScope();  // none yet, or a macro keeps it
    local->variables.clear();
    const Interpreter::InScope inner(run, local);
    run.Assign(target, *item);
    local->Set("loop", std::shared_ptr<Object>(loop));
    run.Evaluate(body);
    const Interpreter::Flow flow = std::exchange(run.flow, Interpreter::Flow::kNext);
    if (flow == Interpreter::Flow::kBreak) break;
    completed |= flow == Interpreter::Flow::kNext;
  }
  if (completed || otherwise.children.empty()) return {};
  const Interpreter::InScope inner(run);
  return run.Evaluate(otherwise);
}

Value ExecuteSet(Interpreter& run, const Node& node) {
  run.Assign(node.children[0], run.Evaluate(node.children[1]));
  return {};
}

Value ExecuteMacro(Interpreter& run, const Node& node) {
  run.scope()->Set(node.text, std::shared_ptr<Object>(run.Make<Macro>(node, run.scope())));
  return {};
}

Value ExecuteGeneration(Interpreter& run, const Node& node) {
  const Value text = run.Evaluate(node.children[0]);
  if (!run.failed()) run.WriteGenerated(*text.text());
  return {};
}

Value ExecuteBreak(Interpreter& run, const Node& /*node*/) {
  run.flow = Interpreter::Flow::kBreak;
  return {};
}

Value ExecuteContinue(Interpreter& run, const Node& /*node*/) {
  run.flow = Interpreter::Flow::kContinue;
  return {};
}

const Value* FindValue(const Interpreter& run, const Node& node) {
  if (node.evaluate == EvaluateLiteral) return &node.value;
  if (node.evaluate == EvaluateName) return run.FindVariable(node.text);
  const bool is_item = node.evaluate == EvaluateItem;
  if (!is_item && node.evaluate != EvaluateAttribute) return nullptr;
  const Value* object = FindValue(run, node.children[0]);
  const Value* key = object == nullptr || object->dict() == nullptr ? nullptr : FindValue(run, node.children[1]);
  if (key == nullptr || key->text() == nullptr || (!is_item && IsDictMethod(*key->text()))) return nullptr;
  return object->dict()->Find(*key->text());
}

}  // namespace onnxtrain::jinja
