// Parses operators, from the conditional down to the signs of operands.
#include "frontend/data/chat/operators.h"
#include "frontend/data/chat/parser.h"

namespace onnxtrain::jinja {
namespace {

// Bounds the recursion of the parser, and of everything that walks its trees.
constexpr int kMaxNesting = 200, kMaxTreeDepth = 200;

}  // namespace

absl::Status ExpressionParser::SetDepth(Expression* node, std::initializer_list<const Expression*> operands) {
  for (const Expression* operand : operands) {
    if (operand != nullptr) node->depth = std::max(node->depth, operand->depth + 1);
  }
  if (node->depth <= kMaxTreeDepth) return absl::OkStatus();
  return Invalid("line ", node->line, ": an expression nests more than ", kMaxTreeDepth, " deep");
}

absl::Status ExpressionParser::SetDepth(Expression* node, const Arguments& arguments) {
  for (const auto& operand : arguments.positional) RETURN_IF_ERROR(SetDepth(node, {operand.get()}));
  for (const auto& [name, operand] : arguments.named) RETURN_IF_ERROR(SetDepth(node, {operand.get()}));
  return SetDepth(node, {arguments.all_positional.get(), arguments.all_named.get()});
}

absl::StatusOr<ExpressionPtr> ExpressionParser::MakeUnary(int line, UnaryOperator apply, ExpressionPtr operand) {
  auto node = MakeNode<UnaryExpression>(line);
  RETURN_IF_ERROR(SetDepth(node.get(), {operand.get()}));
  node->apply = apply;
  node->operand = std::move(operand);
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::MakeBinary(int line, BinaryOperator apply, ExpressionPtr left,
                                                           ExpressionPtr right) {
  auto node = MakeNode<BinaryExpression>(line);
  RETURN_IF_ERROR(SetDepth(node.get(), {left.get(), right.get()}));
  node->apply = apply;
  node->left = std::move(left);
  node->right = std::move(right);
  return node;
}

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
  auto parsed = conditionals == Conditionals::kAllowed ? ParseConditional() : ParseLogical(false);
  --nesting_;
  return parsed;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseConditional() {
  ASSIGN_OR_RETURN(ExpressionPtr then, ParseLogical(false));
  while (IsName("if")) {
    auto node = MakeNode<ConditionalExpression>(Next().line);
    node->then = std::move(then);
    ASSIGN_OR_RETURN(node->condition, ParseLogical(false));
    if (SkipName("else")) {
      ASSIGN_OR_RETURN(node->otherwise, ParseExpression());
    }
    RETURN_IF_ERROR(SetDepth(node.get(), {node->then.get(), node->condition.get(), node->otherwise.get()}));
    then = std::move(node);
  }
  return then;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseTuple(Conditionals conditionals) {
  ASSIGN_OR_RETURN(ExpressionPtr first, ParseExpression(conditionals));
  if (!IsOperator(",")) return first;
  auto node = MakeNode<SequenceExpression>(first->line);
  node->kind = SequenceKind::kTuple;
  node->items.push_back(std::move(first));
  while (SkipOperator(",") && Peek().kind != TokenKind::kVariableEnd && Peek().kind != TokenKind::kBlockEnd) {
    ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(conditionals));
    node->items.push_back(std::move(item));
  }
  for (const auto& item : node->items) RETURN_IF_ERROR(SetDepth(node.get(), {item.get()}));
  return node;
}

absl::StatusOr<ExpressionPtr> ExpressionParser::ParseLogical(bool is_and) {
  const auto parse_operand = [&] { return is_and ? ParseNot() : ParseLogical(true); };
  ASSIGN_OR_RETURN(ExpressionPtr left, parse_operand());
  while (IsName(is_and ? "and" : "or")) {
    auto node = MakeNode<LogicalExpression>(Next().line);
    node->is_and = is_and;
    node->left = std::move(left);
    ASSIGN_OR_RETURN(node->right, parse_operand());
    RETURN_IF_ERROR(SetDepth(node.get(), {node->left.get(), node->right.get()}));
    left = std::move(node);
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

}  // namespace onnxtrain::jinja
