// Defines the tree of a template: expressions that are evaluated, and statements that are executed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontend/data/chat/value.h"

namespace onnxtrain::jinja {

class Interpreter;

struct Expression {
  int line = 0;
  int depth = 1;  // height of its tree

  virtual ~Expression() = default;
  virtual absl::StatusOr<Value> Evaluate(Interpreter& run) const = 0;
  // Returns the value if it exists already, as that of a variable does; else null.
  virtual const Value* Find(const Interpreter& /*run*/) const { return nullptr; }
};
using ExpressionPtr = std::unique_ptr<const Expression>;
using Expressions = std::vector<ExpressionPtr>;

// The control flow after a statement.
enum class Flow : uint8_t { kNext, kBreak, kContinue };

struct Statement {
  int line = 0;

  virtual ~Statement() = default;
  virtual absl::StatusOr<Flow> Execute(Interpreter& run) const = 0;
};
using Body = std::vector<std::unique_ptr<const Statement>>;

// Arguments of a call, filter or test.
struct Arguments {
  Expressions positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr all_positional, all_named;  // those after * and **; may be null
};

struct LiteralExpression : Expression {
  Value value;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
  const Value* Find(const Interpreter& run) const override;
};

struct NameExpression : Expression {
  std::string name;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
  const Value* Find(const Interpreter& run) const override;
};

struct SequenceExpression : Expression {
  SequenceKind kind = SequenceKind::kList;
  Expressions items;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

struct DictExpression : Expression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

using UnaryOperator = absl::StatusOr<Value> (*)(const Value&);
using BinaryOperator = absl::StatusOr<Value> (*)(Interpreter&, const Value&, const Value&);

struct UnaryExpression : Expression {
  UnaryOperator apply = nullptr;
  ExpressionPtr operand;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

struct BinaryExpression : Expression {
  BinaryOperator apply = nullptr;
  ExpressionPtr left, right;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

struct LogicalExpression : Expression {
  bool is_and = true;
  ExpressionPtr left, right;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

// A chain: a < b <= c.
struct ComparisonExpression : Expression {
  ExpressionPtr first;
  std::vector<std::pair<BinaryOperator, ExpressionPtr>> rest;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

struct ConcatExpression : Expression {
  Expressions parts;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

struct ConditionalExpression : Expression {
  ExpressionPtr condition, then, otherwise;  // `otherwise` may be null
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

struct AttributeExpression : Expression {
  ExpressionPtr object;
  std::string name;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
  const Value* Find(const Interpreter& run) const override;
};

struct ItemExpression : Expression {
  ExpressionPtr object, key;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
  const Value* Find(const Interpreter& run) const override;
};

struct SliceExpression : Expression {
  ExpressionPtr object, start, stop, step;  // the last three may be null
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

struct CallExpression : Expression {
  ExpressionPtr function;
  Arguments arguments;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

struct FilterExpression : Expression {
  ExpressionPtr operand;  // null: the text of a block
  std::string name;
  Arguments arguments;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
  absl::StatusOr<Value> Apply(Interpreter& run, const Value& operand) const;
};

struct TestExpression : Expression {
  ExpressionPtr operand;
  std::string name;
  Arguments arguments;
  absl::StatusOr<Value> Evaluate(Interpreter& run) const override;
};

// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name, attribute;
  std::vector<Target> items;
  bool is_tuple = false;
};

struct TextStatement : Statement {
  std::string text;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

struct PrintStatement : Statement {
  ExpressionPtr value;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

struct IfStatement : Statement {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

struct ForStatement : Statement {
  Target target;
  ExpressionPtr items, condition;  // `condition` may be null
  Body body, otherwise;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

struct SetStatement : Statement {
  Target target;
  ExpressionPtr value;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

struct SetBlockStatement : Statement {
  Target target;
  std::vector<std::unique_ptr<const FilterExpression>> filters;
  Body body;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

struct FilterStatement : Statement {
  std::vector<std::unique_ptr<const FilterExpression>> filters;
  Body body;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

struct WithStatement : Statement {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

struct MacroStatement : Statement {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with defaults, which may be null
  Body body;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

// {% generation %}: the text that a model is trained to write.
struct GenerationStatement : Statement {
  Body body;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

struct FlowStatement : Statement {
  Flow flow = Flow::kBreak;
  absl::StatusOr<Flow> Execute(Interpreter& run) const override;
};

}  // namespace onnxtrain::jinja
