#include <charconv>
#include <cmath>
#include <cstdlib>

#include "frontend/data/chat/operators.h"
#include "frontend/data/chat/parser.h"

namespace onnxtrain::jinja {
namespace {

// Bounds the recursion of the parser, and of everything that walks its trees.
constexpr int kMaxNesting = 200, kMaxTreeDepth = 200;

template <typename Node>
std::unique_ptr<Node> MakeNode(int line) {
  auto node = std::make_unique<Node>();
  node->line = line;
  return node;
}

// Sets the depth of a node from that of its operands.
absl::Status SetDepth(Expression* node, std::initializer_list<const Expression*> operands) {
  for (const Expression* operand : operands) {
    if (operand != nullptr) node->depth = std::max(node->depth, operand->depth + 1);
  }
  if (node->depth <= kMaxTreeDepth) return absl::OkStatus();
  return Invalid("line ", node->line, ": an expression nests more than ", kMaxTreeDepth, " deep");
}

absl::Status SetDepth(Expression* node, const Arguments& arguments) {
  for (const auto& operand : arguments.positional) RETURN_IF_ERROR(SetDepth(node, {operand.get()}));
  for (const auto& [name, operand] : arguments.named) RETURN_IF_ERROR(SetDepth(node, {operand.get()}));
  return SetDepth(node, {arguments.all_positional.get(), arguments.all_named.get()});
}

ExpressionPtr MakeLiteral(int line, Value value) {
  auto node = MakeNode<LiteralExpression>(line);
  node->value = std::move(value);
  return node;
}

absl::StatusOr<ExpressionPtr> MakeUnary(int line, UnaryOperator apply, ExpressionPtr operand) {
  auto node = MakeNode<UnaryExpression>(line);
  RETURN_IF_ERROR(SetDepth(node.get(), {operand.get()}));
  node->apply = apply;
  node->operand = std::move(operand);
  return node;
}

absl::StatusOr<ExpressionPtr> MakeBinary(int line, BinaryOperator apply, ExpressionPtr left, ExpressionPtr right) {
  auto node = MakeNode<BinaryExpression>(line);
  RETURN_IF_ERROR(SetDepth(node.get(), {left.get(), right.get()}));
  node->apply = apply;
  node->left = std::move(left);
  node->right = std::move(right);
  return node;
}

absl::StatusOr<ExpressionPtr> MakeLogical(int line, bool is_and, ExpressionPtr left, ExpressionPtr right) {
  auto node = MakeNode<LogicalExpression>(line);
  RETURN_IF_ERROR(SetDepth(node.get(), {left.get(), right.get()}));
  node->is_and = is_and;
  node->left = std::move(left);
  node->right = std::move(right);
  return node;
}

}  // namespace

const Token& ExpressionParser::Next() {
  const Token& token = Peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::IsAt(TokenKind kind, std::string_view text, size_t ahead) const {
  return Peek(ahead).kind == kind && Peek(ahead).text == text;
}

bool ExpressionParser::SkipName(std::string_view name) {
  const bool is = IsName(name);
  if (is) Next();
  return is;
}

bool ExpressionParser::SkipOperator(std::string_view text) {
  const bool is = IsOperator(text);
  if (is) Next();
  return is;
}

absl::Status ExpressionParser::ExpectOperator(std::string_view text) {
  if (SkipOperator(text)) return absl::OkStatus();
  return Invalid(Unexpected().message(), ", expected '", text, "'");
}

absl::StatusOr<std::string> ExpressionParser::ExpectName() {
  if (Peek().kind != TokenKind::kName) return Invalid(Unexpected().message(), ", expected a name");
  return Next().text;
}

absl::Status ExpressionParser::Unexpected() const {
  constexpr std::string_view kKinds[] = {
      "text", "'{{'", "'}}'", "'{%'", "'%}'", "name", "text", "number", "number", "operator", "end of the template"};
  const Token& token = Peek();
  const std::string_view kind = kKinds[static_cast<int>(token.kind)];
  const bool has_text = token.kind >= TokenKind::kName && token.kind != TokenKind::kEnd;
  return Fail(token.line, "unexpected ", kind, has_text ? StrCat(" '", Printable(token.text), "'") : "");
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseExpression(Conditionals conditionals) {
  if (++nesting_ > kMaxNesting) return Fail(Peek().line, "expressions nest more than ", kMaxNesting, " deep");
  auto parsed = conditionals == Conditionals::kAllowed ? ParseConditional() : ParseOr();
  --nesting_;
  return parsed;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConditional() {
  ASSIGN_OR_RETURN(ExpressionPtr then, ParseOr());
  while (IsName("if")) {
    auto node = MakeNode<ConditionalExpression>(Next().line);
    node->then = std::move(then);
    ASSIGN_OR_RETURN(node->condition, ParseOr());
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(node->otherwise, ParseExpression());
    }
    RETURN_IF_ERROR(SetDepth(node.get(), {node->then.get(), node->condition.get(), node->otherwise.get()}));
    then = std::move(node);
  }
  return then;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (IsName("or")) {
    const int line = Next().line;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    ASSIGN_OR_RETURN(left, MakeLogical(line, false, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (IsName("and")) {
    const int line = Next().line;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    ASSIGN_OR_RETURN(left, MakeLogical(line, true, std::move(left), std::move(right)));
  }
  return left;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNot() {
  const int line = Peek().line;
  int count = 0;
  while (SkipName("not")) ++count;
  ASSIGN_OR_RETURN(ExpressionPtr node, ParseComparison());
  for (; count > 0; --count) {
    ASSIGN_OR_RETURN(node, MakeUnary(line, Not, std::move(node)));
  }
  return node;
}

const ExpressionParser::OperatorRow* ExpressionParser::FindComparison() const {
  static constexpr OperatorRow kComparisons[] = {{"==", Equal},     {"!=", NotEqual}, {"<", Less},
                                                 {"<=", LessEqual}, {">", Greater},   {">=", GreaterEqual}};
  static constexpr OperatorRow kIn = {"in", In}, kNotIn = {"not in", NotIn};
  if (IsName("in")) return &kIn;
  if (IsName("not") && IsAt(TokenKind::kName, "in", 1)) return &kNotIn;
  const auto* found = std::ranges::find_if(kComparisons, [&](const auto& row) { return IsOperator(row.text); });
  return found == std::end(kComparisons) ? nullptr : found;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseComparison() {
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseSum());
  const OperatorRow* row = FindComparison();
  if (row == nullptr) return first;
  auto node = MakeNode<ComparisonExpression>(Peek().line);
  node->first = std::move(first);
  for (; row != nullptr; row = FindComparison()) {
    SkipName("not");
    Next();
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseSum());
    RETURN_IF_ERROR(SetDepth(node.get(), {node->first.get(), right.get()}));
    node->rest.emplace_back(row->apply, std::move(right));
  }
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseLeftToRight(std::span<const OperatorRow> operators,
                                                                 ParseFunction operand) {
  ASSIGN_OR_RETURN(ExpressionPtr left, (this->*operand)());
  while (true) {
    const auto row = std::ranges::find_if(operators, [&](const auto& r) { return IsOperator(r.text); });
    if (row == operators.end()) return left;
    const int line = Next().line;
    ASSIGN_OR_RETURN(ExpressionPtr right, (this->*operand)());
    ASSIGN_OR_RETURN(left, MakeBinary(line, row->apply, std::move(left), std::move(right)));
  }
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSum() {
  static constexpr OperatorRow kOperators[] = {{"+", Add}, {"-", Subtract}};
  return ParseLeftToRight(kOperators, &ExpressionParser::ParseConcat);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConcat() {
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseProduct());
  if (!IsOperator("~")) return first;
  auto node = MakeNode<ConcatExpression>(Peek().line);
  node->parts.push_back(std::move(first));
  while (SkipOperator("~")) {
    ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    node->parts.push_back(std::move(part));
  }
  for (const auto& part : node->parts) RETURN_IF_ERROR(SetDepth(node.get(), {part.get()}));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseProduct() {
  static constexpr OperatorRow kOperators[] = {{"*", Multiply}, {"/", Divide}, {"//", FloorDivide}, {"%", Modulo}};
  return ParseLeftToRight(kOperators, &ExpressionParser::ParsePower);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePower() {
  static constexpr OperatorRow kOperators[] = {{"**", Power}};
  return ParseLeftToRight(kOperators, &ExpressionParser::ParseSigned);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseSigned() { return ParseUnary(); }

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filters) {
  if (++nesting_ > kMaxNesting) return Fail(Peek().line, "expressions nest more than ", kMaxNesting, " deep");
  ExpressionPtr node;
  if (IsOperator("-") || IsOperator("+")) {
    const UnaryOperator apply = IsOperator("-") ? Negate : KeepSign;
    const int line = Next().line;
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(false));
    ASSIGN_OR_RETURN(node, MakeUnary(line, apply, std::move(operand)));
  } else {
    ASSIGN_OR_RETURN(node, ParsePrimary());
  }
  ASSIGN_OR_RETURN(node, ParsePostfix(std::move(node)));
  if (with_filters) {
    ASSIGN_OR_RETURN(node, ParseFiltersAndTests(std::move(node)));
  }
  --nesting_;
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const TokenKind kind = Peek().kind;
  if (kind == TokenKind::kName) return ParseNameOrConstant();
  if (kind == TokenKind::kString) return ParseText();
  if (kind == TokenKind::kInteger || kind == TokenKind::kFloat) return ParseNumber();
  if (IsOperator("(")) return ParseParentheses();
  if (IsOperator("[")) return ParseList();
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
  read_names_.caller |= token.text == "caller";
  read_names_.varargs |= token.text == "varargs";
  read_names_.kwargs |= token.text == "kwargs";
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseNumber() {
  const Token& token = Next();
  if (token.kind == TokenKind::kFloat) return MakeLiteral(token.line, std::strtod(token.text.c_str(), nullptr));
  constexpr std::pair<std::string_view, int> kBases[] = {{"0x", 16}, {"0X", 16}, {"0o", 8},
                                                         {"0O", 8},  {"0b", 2},  {"0B", 2}};
  std::string_view digits = token.text;
  int base = 10;
  for (const auto& [prefix, prefix_base] : kBases) {
    if (digits.starts_with(prefix)) base = prefix_base;
  }
  if (base != 10) digits.remove_prefix(2);
  if (base == 10 && digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != digits.npos)
    return Fail(token.line, "the number ", Printable(token.text), " begins with 0");
  int64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (parsed.ec != std::errc()) return Fail(token.line, "the number ", Printable(token.text), " exceeds 64 bits");
  return MakeLiteral(token.line, number);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseText() {
  const int line = Peek().line;
  std::string text;
  while (Peek().kind == TokenKind::kString) text += Next().text;
  return MakeLiteral(line, text);
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseParentheses() {
  const int line = Next().line;
  ExpressionPtr node;
  if (IsOperator(")")) {
    auto empty = MakeNode<SequenceExpression>(line);
    empty->kind = SequenceKind::kTuple;
    node = std::move(empty);
  } else {
    ASSIGN_OR_RETURN(node, ParseTuple(Conditionals::kAllowed));
  }
  RETURN_IF_ERROR(ExpectOperator(")"));
  return node;
}

bool ExpressionParser::IsTupleEnd(std::string_view end) const {
  const TokenKind kind = Peek().kind;
  return kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || IsOperator(")") ||
         (!end.empty() && IsName(end));
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(Conditionals conditionals, std::string_view end) {
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseExpression(conditionals));
  if (!IsOperator(",")) return first;
  auto node = MakeNode<SequenceExpression>(first->line);
  node->kind = SequenceKind::kTuple;
  node->items.push_back(std::move(first));
  while (SkipOperator(",") && !IsTupleEnd(end)) {
    ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(conditionals));
    node->items.push_back(std::move(item));
  }
  for (const auto& item : node->items) RETURN_IF_ERROR(SetDepth(node.get(), {item.get()}));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseList() {
  auto node = MakeNode<SequenceExpression>(Next().line);
  while (!IsOperator("]")) {
    ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    RETURN_IF_ERROR(SetDepth(node.get(), {item.get()}));
    node->items.push_back(std::move(item));
    if (!IsOperator("]")) RETURN_IF_ERROR(ExpectOperator(","));
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
  if (IsOperator(",")) {
    auto tuple = MakeNode<SequenceExpression>(line);
    tuple->kind = SequenceKind::kTuple;
    tuple->depth = key->depth + 1;
    tuple->items.push_back(std::move(key));
    while (SkipOperator(",")) {
      ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
      RETURN_IF_ERROR(SetDepth(tuple.get(), {item.get()}));
      tuple->items.push_back(std::move(item));
    }
    key = std::move(tuple);
  }
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

absl::StatusOr<std::string> ExpressionParser::ExpectDottedName() {
  ASSIGN_OR_RETURN(std::string name, ExpectName());
  while (SkipOperator(".")) {
    ASSIGN_OR_RETURN(const std::string part, ExpectName());
    StrAppend(&name, ".", part);
  }
  return name;
}

absl::StatusOr<std::unique_ptr<FilterExpression>> ExpressionParser::ParseFilter(ExpressionPtr operand) {
  auto node = MakeNode<FilterExpression>(Peek().line);
  node->operand = std::move(operand);
  ASSIGN_OR_RETURN(node->name, ExpectDottedName());
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
  ASSIGN_OR_RETURN(node->name, ExpectDottedName());
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
