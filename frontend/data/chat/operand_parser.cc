// Parses operands: literals, names, what follows them in brackets or after a point, filters and tests.
#include <charconv>
#include <cstdlib>

#include "frontend/data/chat/operators.h"
#include "frontend/data/chat/parser.h"

namespace onnxtrain::jinja {
namespace {

ExpressionPtr MakeLiteral(int line, Value value) {
  auto node = std::make_unique<LiteralExpression>();
  node->line = line;
  node->value = std::move(value);
  return node;
}

}  // namespace

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const TokenKind kind = Peek().kind;
  if (kind == TokenKind::kName) return ParseNameOrConstant();
  if (kind == TokenKind::kString) return ParseText();
  if (kind == TokenKind::kInteger || kind == TokenKind::kFloat) return ParseNumber();
  if (IsOperator("(")) return ParseParentheses();
  if (IsOperator("[")) return ParseItems(MakeNode<SequenceExpression>(Next().line), "]");
  if (IsOperator("{")) return ParseDict();
  return Unexpected();
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNameOrConstant() {
  const Token& token = Next();
  if (token.text == "true" || token.text == "True") return MakeLiteral(token.line, true);
  if (token.text == "false" || token.text == "False") return MakeLiteral(token.line, false);
  if (token.text == "none" || token.text == "None") return MakeLiteral(token.line, None());
  auto node = MakeNode<NameExpression>(token.line);
  node->name = token.text;
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNumber() {
  const Token& token = Next();
  const std::string& digits = token.text;
  if (token.kind == TokenKind::kFloat) return MakeLiteral(token.line, std::strtod(digits.c_str(), nullptr));
  if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != digits.npos)
    return Fail(token.line, "the number ", digits, " begins with 0");
  int64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (parsed.ec != std::errc()) return Fail(token.line, "the number ", digits, " exceeds 64 bits");
  return MakeLiteral(token.line, number);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseText() {
  const int line = Peek().line;
  std::string text;
  while (Peek().kind == TokenKind::kString) text += Next().text;
  return MakeLiteral(line, text);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseParentheses() {
  auto tuple = MakeNode<SequenceExpression>(Next().line);
  tuple->kind = SequenceKind::kTuple;
  if (!IsOperator(")")) {
    ASSIGN_OR_RETURN(ExpressionPtr first, ParseExpression());
    if (SkipOperator(")")) return first;
    RETURN_IF_ERROR(ExpectOperator(","));
    RETURN_IF_ERROR(SetDepth(tuple.get(), {first.get()}));
    tuple->items.push_back(std::move(first));
  }
  return ParseItems(std::move(tuple), ")");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseItems(std::unique_ptr<SequenceExpression> node,
                                                           std::string_view end) {
  while (!IsOperator(end)) {
    ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    RETURN_IF_ERROR(SetDepth(node.get(), {item.get()}));
    node->items.push_back(std::move(item));
    if (!IsOperator(end)) RETURN_IF_ERROR(ExpectOperator(","));
  }
  Next();
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseDict() {
  auto node = MakeNode<DictExpression>(Next().line);
  while (!IsOperator("}")) {
    ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    RETURN_IF_ERROR(ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    RETURN_IF_ERROR(SetDepth(node.get(), {key.get(), value.get()}));
    node->items.emplace_back(std::move(key), std::move(value));
    if (!IsOperator("}")) RETURN_IF_ERROR(ExpectOperator(","));
  }
  Next();
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (IsOperator(".")) {
      ASSIGN_OR_RETURN(node, ParseAttribute(std::move(node)));
    } else if (IsOperator("[")) {
      ASSIGN_OR_RETURN(node, ParseSubscript(std::move(node)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAttribute(ExpressionPtr object) {
  const int line = Next().line;
  if (Peek().kind == TokenKind::kInteger) {
    auto node = MakeNode<ItemExpression>(line);
    RETURN_IF_ERROR(SetDepth(node.get(), {object.get()}));
    node->object = std::move(object);
    ASSIGN_OR_RETURN(node->key, ParseNumber());
    return node;
  }
  auto node = MakeNode<AttributeExpression>(line);
  RETURN_IF_ERROR(SetDepth(node.get(), {object.get()}));
  node->object = std::move(object);
  ASSIGN_OR_RETURN(node->name, ExpectName());
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr object) {
  const int line = Next().line;
  ExpressionPtr key;
  if (!IsOperator(":")) {
    ASSIGN_OR_RETURN(key, ParseExpression());
  }
  if (SkipOperator(":")) return ParseSlice(std::move(object), std::move(key), line);
  auto node = MakeNode<ItemExpression>(line);
  node->object = std::move(object);
  node->key = std::move(key);
  RETURN_IF_ERROR(SetDepth(node.get(), {node->object.get(), node->key.get()}));
  RETURN_IF_ERROR(ExpectOperator("]"));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSlice(ExpressionPtr object, ExpressionPtr start, int line) {
  auto node = MakeNode<SliceExpression>(line);
  node->object = std::move(object);
  node->start = std::move(start);
  if (!IsOperator(":") && !IsOperator("]")) {
    ASSIGN_OR_RETURN(node->stop, ParseExpression());
  }
  if (SkipOperator(":") && !IsOperator("]")) {
    ASSIGN_OR_RETURN(node->step, ParseExpression());
  }
  RETURN_IF_ERROR(ExpectOperator("]"));
  RETURN_IF_ERROR(SetDepth(node.get(), {node->object.get(), node->start.get(), node->stop.get(), node->step.get()}));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseCall(ExpressionPtr function) {
  auto node = MakeNode<CallExpression>(Peek().line);
  node->function = std::move(function);
  ASSIGN_OR_RETURN(node->arguments, ParseArguments());
  RETURN_IF_ERROR(SetDepth(node.get(), node->arguments));
  RETURN_IF_ERROR(SetDepth(node.get(), {node->function.get()}));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseFiltersAndTests(ExpressionPtr node) {
  while (true) {
    if (SkipOperator("|")) {
      ASSIGN_OR_RETURN(node, ParseFilter(std::move(node)));
    } else if (SkipName("is")) {
      ASSIGN_OR_RETURN(node, ParseTest(std::move(node)));
    } else if (IsOperator("(")) {
      ASSIGN_OR_RETURN(node, ParseCall(std::move(node)));
    } else {
      return node;
    }
  }
}

absl::StatusOr<std::unique_ptr<FilterExpression>> ExpressionParser::ParseFilter(ExpressionPtr operand) {
  auto node = MakeNode<FilterExpression>(Peek().line);
  node->operand = std::move(operand);
  ASSIGN_OR_RETURN(node->name, ExpectName());
  if (IsOperator("(")) {
    ASSIGN_OR_RETURN(node->arguments, ParseArguments());
  }
  RETURN_IF_ERROR(SetDepth(node.get(), node->arguments));
  RETURN_IF_ERROR(SetDepth(node.get(), {node->operand.get()}));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr operand) {
  auto node = MakeNode<TestExpression>(Peek().line);
  const bool negated = SkipName("not");
  node->operand = std::move(operand);
  ASSIGN_OR_RETURN(node->name, ExpectName());
  ASSIGN_OR_RETURN(node->arguments, ParseTestArguments());
  RETURN_IF_ERROR(SetDepth(node.get(), node->arguments));
  RETURN_IF_ERROR(SetDepth(node.get(), {node->operand.get()}));
  const int line = node->line;
  return negated ? MakeUnary(line, Not, std::move(node)) : absl::StatusOr<ExpressionPtr>(std::move(node));
}

// A test takes arguments in parentheses, or one operand without them: `x is divisibleby 3`.
absl::StatusOr<Arguments> ExpressionParser::ParseTestArguments() {
  Arguments arguments;
  if (IsOperator("(")) return ParseArguments();
  const TokenKind kind = Peek().kind;
  const bool literal = kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat;
  const bool name = kind == TokenKind::kName && !IsName("else") && !IsName("or") && !IsName("and");
  if (!literal && !name && !IsOperator("[") && !IsOperator("{")) return arguments;
  if (IsName("is")) return Fail(Peek().line, "tests cannot be chained with is");
  ASSIGN_OR_RETURN(ExpressionPtr operand, ParsePrimary());
  ASSIGN_OR_RETURN(operand, ParsePostfix(std::move(operand)));
  arguments.positional.push_back(std::move(operand));
  return arguments;
}

absl::StatusOr<Arguments> ExpressionParser::ParseArguments() {
  Arguments arguments;
  RETURN_IF_ERROR(ExpectOperator("("));
  while (!IsOperator(")")) {
    RETURN_IF_ERROR(ParseArgument(&arguments));
    if (!IsOperator(")")) RETURN_IF_ERROR(ExpectOperator(","));
  }
  Next();
  return arguments;
}

absl::Status ExpressionParser::ParseArgument(Arguments* arguments) {
  const int line = Peek().line;
  const bool all = IsOperator("*"), all_named = IsOperator("**");
  const bool named = Peek().kind == TokenKind::kName && IsAt(TokenKind::kOperator, "=", 1);
  const bool after_all = arguments->all_positional != nullptr, after_named = !arguments->named.empty();
  if (arguments->all_named != nullptr || (all && after_all) ||
      (!all && !all_named && !named && (after_all || after_named)))
    return Fail(line, "arguments are in the wrong order");
  std::string name;
  if (named) name = Next().text;
  if (all || all_named || named) Next();
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
  if (all) {
    arguments->all_positional = std::move(value);
  } else if (all_named) {
    arguments->all_named = std::move(value);
  } else if (named) {
    arguments->named.emplace_back(name, std::move(value));
  } else {
    arguments->positional.push_back(std::move(value));
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain::jinja
