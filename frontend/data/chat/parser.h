// Parses templates: one class parses expressions, its subclass statements.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/data/chat/lexer.h"
#include "frontend/data/chat/syntax.h"

namespace onnxtrain::jinja {

// Parses a template of valid UTF-8. Errors begin with "line N: ".
absl::StatusOr<Body> ParseTemplate(std::string_view source);

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  enum class Conditionals : uint8_t { kAllowed, kExcluded };  // whether `a if b` is part of an expression

  absl::StatusOr<ExpressionPtr> ParseExpression(Conditionals conditionals = Conditionals::kAllowed);
  // Parses an expression, or a tuple without parentheses.
  absl::StatusOr<ExpressionPtr> ParseTuple(Conditionals conditionals);
  absl::StatusOr<ExpressionPtr> ParsePostfix(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseUnary(bool with_filters = true);
  // Parses a name and its arguments after "|".
  absl::StatusOr<std::unique_ptr<FilterExpression>> ParseFilter(ExpressionPtr operand);

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& Next();
  bool IsAt(TokenKind kind, std::string_view text, size_t ahead = 0) const;
  bool IsName(std::string_view name) const { return IsAt(TokenKind::kName, name); }
  bool IsOperator(std::string_view text) const { return IsAt(TokenKind::kOperator, text); }
  // Skips the token if it is next; returns whether it was.
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view text);
  absl::Status ExpectOperator(std::string_view text);
  absl::StatusOr<std::string> ExpectName();
  absl::Status Unexpected() const;
  template <typename... Args>
  absl::Status Fail(int line, const Args&... message) const {
    return Invalid("line ", line, ": ", message...);
  }

  int nesting_ = 0;

 private:
  template <typename Node>
  static std::unique_ptr<Node> MakeNode(int line) {
    auto node = std::make_unique<Node>();
    node->line = line;
    return node;
  }
  // Sets the depth of a node from that of its operands. Fails if it is too large.
  static absl::Status SetDepth(Expression* node, std::initializer_list<const Expression*> operands);
  static absl::Status SetDepth(Expression* node, const Arguments& arguments);
  static absl::StatusOr<ExpressionPtr> MakeUnary(int line, UnaryOperator apply, ExpressionPtr operand);
  static absl::StatusOr<ExpressionPtr> MakeBinary(int line, BinaryOperator apply, ExpressionPtr left,
                                                  ExpressionPtr right);

  using ParseFunction = absl::StatusOr<ExpressionPtr> (ExpressionParser::*)();
  struct OperatorRow {
    std::string_view text;
    BinaryOperator apply;
  };

  absl::StatusOr<ExpressionPtr> ParseConditional();
  absl::StatusOr<ExpressionPtr> ParseLogical(bool is_and);
  absl::StatusOr<ExpressionPtr> ParseNot();
  absl::StatusOr<ExpressionPtr> ParseComparison();
  absl::StatusOr<ExpressionPtr> ParseSum();
  absl::StatusOr<ExpressionPtr> ParseConcat();
  absl::StatusOr<ExpressionPtr> ParseProduct();
  absl::StatusOr<ExpressionPtr> ParseSigned();
  absl::StatusOr<ExpressionPtr> ParsePrimary();
  absl::StatusOr<ExpressionPtr> ParseNameOrConstant();
  absl::StatusOr<ExpressionPtr> ParseNumber();
  absl::StatusOr<ExpressionPtr> ParseText();
  absl::StatusOr<ExpressionPtr> ParseParentheses();
  // Parses further items of a sequence up to an operator, which ends it.
  absl::StatusOr<ExpressionPtr> ParseItems(std::unique_ptr<SequenceExpression> node, std::string_view end);
  absl::StatusOr<ExpressionPtr> ParseDict();
  absl::StatusOr<ExpressionPtr> ParseAttribute(ExpressionPtr object);
  absl::StatusOr<ExpressionPtr> ParseSubscript(ExpressionPtr object);
  absl::StatusOr<ExpressionPtr> ParseSlice(ExpressionPtr object, ExpressionPtr start, int line);
  absl::StatusOr<ExpressionPtr> ParseCall(ExpressionPtr function);
  absl::StatusOr<ExpressionPtr> ParseFiltersAndTests(ExpressionPtr node);
  absl::StatusOr<ExpressionPtr> ParseTest(ExpressionPtr operand);
  absl::StatusOr<Arguments> ParseTestArguments();
  absl::StatusOr<Arguments> ParseArguments();
  absl::Status ParseArgument(Arguments* arguments);
  absl::StatusOr<ExpressionPtr> ParseLeftToRight(std::span<const OperatorRow> operators, ParseFunction operand);
  const OperatorRow* FindComparison() const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace onnxtrain::jinja
