#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"

namespace onnxtrain::jinja {

absl::StatusOr<Value> LiteralExpression::Evaluate(Interpreter& /*run*/) const { return value; }

const Value* LiteralExpression::Find(const Interpreter& /*run*/) const { return &value; }

absl::StatusOr<Value> NameExpression::Evaluate(Interpreter& run) const { return run.Lookup(name); }

const Value* NameExpression::Find(const Interpreter& run) const { return run.FindVariable(name); }

absl::StatusOr<Value> SequenceExpression::Evaluate(Interpreter& run) const {
  Values values;
  for (const ExpressionPtr& item : items) {
    ASSIGN_OR_RETURN(Value value, run.Evaluate(*item));
    values.push_back(std::move(value));
  }
  return MakeSequence(kind, std::move(values));
}

absl::StatusOr<Value> DictExpression::Evaluate(Interpreter& run) const {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key_expression, value_expression] : items) {
    ASSIGN_OR_RETURN(const Value key, run.Evaluate(*key_expression));
    ASSIGN_OR_RETURN(Value value, run.Evaluate(*value_expression));
    RETURN_IF_ERROR(dict->Set(key, std::move(value)));
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

absl::StatusOr<Value> UnaryExpression::Evaluate(Interpreter& run) const {
  Value place;
  ASSIGN_OR_RETURN(const Value* value, run.View(*operand, &place));
  return apply(*value);
}

absl::StatusOr<Value> BinaryExpression::Evaluate(Interpreter& run) const {
  Value place_a, place_b;
  ASSIGN_OR_RETURN(const Value* a, run.View(*left, &place_a));
  ASSIGN_OR_RETURN(const Value* b, run.View(*right, &place_b));
  return apply(run, *a, *b);
}

absl::StatusOr<Value> LogicalExpression::Evaluate(Interpreter& run) const {
  ASSIGN_OR_RETURN(Value value, run.Evaluate(*left));
  return IsTrue(value) == is_and ? run.Evaluate(*right) : std::move(value);
}

absl::StatusOr<Value> ComparisonExpression::Evaluate(Interpreter& run) const {
  Value places[2], result = true;
  ASSIGN_OR_RETURN(const Value* left, run.View(*first, &places[0]));
  for (size_t i = 0; i < rest.size(); ++i) {
    const auto& [compare, operand] = rest[i];
    ASSIGN_OR_RETURN(const Value* right, run.View(*operand, &places[(i + 1) % 2]));
    ASSIGN_OR_RETURN(result, compare(run, *left, *right));
    if (!IsTrue(result)) break;
    left = right;
  }
  return result;
}

absl::StatusOr<Value> ConcatExpression::Evaluate(Interpreter& run) const {
  std::string text;
  for (const ExpressionPtr& part : parts) {
    Value place;
    ASSIGN_OR_RETURN(const Value* value, run.View(*part, &place));
    AppendPrinted(*value, &text);
    RETURN_IF_ERROR(run.CheckBytes(std::ssize(text)));
  }
  RETURN_IF_ERROR(run.CountBytes(static_cast<int64_t>(text.size())));
  return Value(std::move(text));
}

absl::StatusOr<Value> ConditionalExpression::Evaluate(Interpreter& run) const {
  Value place;
  ASSIGN_OR_RETURN(const Value* truth, run.View(*condition, &place));
  if (IsTrue(*truth)) return run.Evaluate(*then);
  if (otherwise != nullptr) return run.Evaluate(*otherwise);
  return MakeUndefined("the inline if evaluated to false and has no else");
}

absl::StatusOr<Value> AttributeExpression::Evaluate(Interpreter& run) const {
  Value place;
  ASSIGN_OR_RETURN(const Value* value, run.View(*object, &place));
  return GetAttribute(*value, name);
}

const Value* AttributeExpression::Find(const Interpreter& run) const {
  const Value* value = object->Find(run);
  const bool is_item = value != nullptr && value->dict() != nullptr && FindBuiltin(DictMethods(), name) == nullptr;
  return is_item ? value->dict()->FindText(name) : nullptr;
}

absl::StatusOr<Value> ItemExpression::Evaluate(Interpreter& run) const {
  Value place, key_place;
  ASSIGN_OR_RETURN(const Value* value, run.View(*object, &place));
  ASSIGN_OR_RETURN(const Value* index, run.View(*key, &key_place));
  return GetItem(*value, *index);
}

const Value* ItemExpression::Find(const Interpreter& run) const {
  const Value* value = object->Find(run);
  const Value* index = value != nullptr && value->dict() != nullptr ? key->Find(run) : nullptr;
  return index != nullptr && index->text() != nullptr ? value->dict()->FindText(*index->text()) : nullptr;
}

absl::StatusOr<Value> SliceExpression::Evaluate(Interpreter& run) const {
  Value place;
  ASSIGN_OR_RETURN(const Value* value, run.View(*object, &place));
  Value bounds[3] = {None(), None(), None()};
  const Expression* expressions[] = {start.get(), stop.get(), step.get()};
  for (int i = 0; i < 3; ++i) {
    if (expressions[i] != nullptr) {
      ASSIGN_OR_RETURN(bounds[i], run.Evaluate(*expressions[i]));
    }
  }
  ASSIGN_OR_RETURN(Value slice, GetSlice(*value, bounds[0], bounds[1], bounds[2]));
  RETURN_IF_ERROR(run.CountBytes(GetLength(slice).value_or(0)));
  return slice;
}

absl::StatusOr<Value> CallExpression::Evaluate(Interpreter& run) const {
  ASSIGN_OR_RETURN(const Value callee, run.Evaluate(*function));
  ASSIGN_OR_RETURN(CallArguments values, run.EvaluateArguments(arguments));
  return run.Call(callee, std::move(values));
}

absl::StatusOr<Value> FilterExpression::Evaluate(Interpreter& run) const {
  Value place;
  ASSIGN_OR_RETURN(const Value* value, run.View(*operand, &place));
  return Apply(run, *value);
}

absl::StatusOr<Value> FilterExpression::Apply(Interpreter& run, const Value& value) const {
  ASSIGN_OR_RETURN(CallArguments values, run.EvaluateArguments(arguments));
  return run.ApplyFilter(name, value, std::move(values));
}

absl::StatusOr<Value> TestExpression::Evaluate(Interpreter& run) const {
  Value place;
  ASSIGN_OR_RETURN(const Value* value, run.View(*operand, &place));
  ASSIGN_OR_RETURN(CallArguments values, run.EvaluateArguments(arguments));
  ASSIGN_OR_RETURN(const bool holds, run.ApplyTest(name, *value, std::move(values)));
  return Value(holds);
}

}  // namespace onnxtrain::jinja
