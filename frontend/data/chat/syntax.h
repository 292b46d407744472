// Defines the tree of a template, and parses templates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/data/chat/value.h"

namespace onnxtrain::jinja {

struct Builtin;
struct Node;
using BinaryOperator = Value (*)(Interpreter& run, const Value& a, const Value& b);
// Evaluates an expression, or executes a statement, of which the value is undefined.
using Evaluator = Value(Interpreter& run, const Node& node);

// A node is of the kind that its evaluator evaluates. Targets of assignments are an EvaluateName, the EvaluateAttribute
// of a namespace, or an EvaluateTuple of targets.
struct Node {
  Evaluator* evaluate = nullptr;
  int line = 0;
  int depth = 1;           // height of the tree of an expression
  std::string text = {};   // the name of a variable, filter, test or macro, or the text of a statement
  Value value = {};        // of a literal
  std::string label = {};  // of an argument: its keyword, "*" or "**"
  BinaryOperator apply = nullptr;
  const Builtin* builtin = nullptr;  // of a filter or test; null if none has the name
  std::vector<Node> children = {};
};

// The kinds of nodes with their children. Children in brackets may be missing.
Evaluator EvaluateLiteral;      // the literal is Node::value
Evaluator EvaluateName;         // the name is Node::text
Evaluator EvaluateList;         // items
Evaluator EvaluateTuple;        // items
Evaluator EvaluateDict;         // key, value, key, value, …
Evaluator EvaluateNot;          // operand
Evaluator EvaluateNegation;     // operand
Evaluator EvaluateBinary;       // two operands, which Node::apply joins
Evaluator EvaluateAnd;          // two operands
Evaluator EvaluateOr;           // two operands
Evaluator EvaluateConditional;  // condition, value, [other value]
Evaluator EvaluateAttribute;    // object, literal with the name
Evaluator EvaluateItem;         // object, key
Evaluator EvaluateSlice;        // object, start, stop, step; None if they are omitted
Evaluator EvaluateCall;         // function, arguments
Evaluator EvaluateFilter;       // operand, arguments
Evaluator EvaluateTest;         // operand, arguments
Evaluator EvaluateCapture;      // body, whose text is the value

Evaluator ExecuteBody;        // statements
Evaluator ExecuteText;        // the text is Node::text
Evaluator ExecutePrint;       // expression
Evaluator ExecuteIf;          // condition, body, condition, body, …, else body
Evaluator ExecuteFor;         // target, items, body, else body, [condition]
Evaluator ExecuteSet;         // target, value
Evaluator ExecuteMacro;       // parameters, body. A parameter is a name, of which a child is the default
Evaluator ExecuteGeneration;  // capture of the text that a model is trained to write
Evaluator ExecuteBreak;
Evaluator ExecuteContinue;

// Returns the value of an expression if it exists already, as that of a variable does; else null.
const Value* FindValue(const Interpreter& run, const Node& node);

// Parses a template of valid UTF-8 to an ExecuteBody. Errors begin with "line N: ". `marks_generation` is set to
// whether it has {% generation %}.
absl::StatusOr<Node> ParseTemplate(std::string_view source, bool* marks_generation);

}  // namespace onnxtrain::jinja
