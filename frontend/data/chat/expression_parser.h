// Parses the expressions of templates: operators by precedence, the rest by recursive descent.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "frontend/data/chat/lexer.h"
#include "frontend/data/chat/syntax.h"

namespace onnxtrain::jinja {

struct OperatorRow;

// The base of the parser of statements. Each function parses what begins at the next token.
class ExpressionParser : protected TokenCursor {
 protected:
  using TokenCursor::TokenCursor;

  Node Make(Evaluator* evaluate, int line, std::vector<Node> children = {});
  template <typename... Nodes>
  Node MakeOf(Evaluator* evaluate, int line, Nodes... children) {
    std::vector<Node> list;
    (list.push_back(std::move(children)), ...);
    return Make(evaluate, line, std::move(list));
  }
  static Node MakeLiteral(int line, Value value) {
    return {.evaluate = EvaluateLiteral, .line = line, .value = std::move(value)};
  }
  static Node MakeName(int line, std::string name) {
    return {.evaluate = EvaluateName, .line = line, .text = std::move(name)};
  }

  Node ParseExpression();
  // Parses an expression, or a tuple without parentheses. The condition of a loop follows its items, which therefore
  // are no conditional.
  Node ParseTuple(bool conditional);
  Node ParseNameOrConstant();
  // Parses a name and its arguments after "|".
  Node ParseFilter(Node operand);
  // Calls `parse` for each of the items that commas separate, up to an operator, which it skips.
  void ForEachItem(std::string_view end, absl::FunctionRef<void()> parse);

 private:
  void Enter(std::string_view what);
  const OperatorRow* FindOperator() const;
  Node ParseBinary(int level);
  Node ParseNot();
  Node ParseUnary(bool with_filters);
  Node ParsePrimary();
  Node ParseNumber();
  std::vector<Node> ParseList(std::string_view end);
  Node ParseParentheses(int line);
  Node ParseDict(int line);
  Node ParsePostfix(Node node);
  Node ParseSubscript(Node object, int line);
  Node ParseCall(Evaluator* evaluate, Node operand, int line);
  Node ParseFiltersAndTests(Node node);
  Node ParseTest(Node operand);
  bool StartsTestOperand();

  int nesting_ = 0;  // calls of Enter around the current one
};

}  // namespace onnxtrain::jinja
