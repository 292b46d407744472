#include "frontend/data/chat/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/operators.h"

namespace onnxtrain::jinja {

// Binary operators. Those of a higher level bind tighter; all join operands from left to right.
struct OperatorRow {
  TokenKind token;
  std::string_view text;
  int level;
  Evaluator* evaluate;
  BinaryOperator apply = nullptr;
};

namespace {

// Bounds the recursion of the parser, and of everything that walks its trees.
constexpr int kMaxNesting = 200, kMaxTreeDepth = 200;

constexpr int kOrLevel = 1, kNotLevel = 3, kComparisonLevel = 4;
constexpr OperatorRow kOperators[] = {
    {TokenKind::kName, "or", kOrLevel, EvaluateOr},
    {TokenKind::kName, "and", 2, EvaluateAnd},
    {TokenKind::kName, "in", kComparisonLevel, EvaluateBinary, In},
    {TokenKind::kName, "not", kComparisonLevel, EvaluateBinary, NotIn},  // before "in"
    {TokenKind::kOperator, "==", kComparisonLevel, EvaluateBinary, Equal},
    {TokenKind::kOperator, "!=", kComparisonLevel, EvaluateBinary, NotEqual},
    {TokenKind::kOperator, "<", kComparisonLevel, EvaluateBinary, Less},
    {TokenKind::kOperator, "<=", kComparisonLevel, EvaluateBinary, LessEqual},
    {TokenKind::kOperator, ">", kComparisonLevel, EvaluateBinary, Greater},
    {TokenKind::kOperator, ">=", kComparisonLevel, EvaluateBinary, GreaterEqual},
    {TokenKind::kOperator, "+", 5, EvaluateBinary, Add},
    {TokenKind::kOperator, "-", 5, EvaluateBinary, Subtract},
    {TokenKind::kOperator, "~", 6, EvaluateBinary, Concat},
    {TokenKind::kOperator, "*", 7, EvaluateBinary, Multiply},
    {TokenKind::kOperator, "/", 7, EvaluateBinary, Divide},
    {TokenKind::kOperator, "//", 7, EvaluateBinary, FloorDivide},
    {TokenKind::kOperator, "%", 7, EvaluateBinary, Modulo},
};

}  // namespace

// Counts the recursion of the parser. Each call is matched by --nesting_.
void ExpressionParser::Enter(std::string_view what) {
  if (++nesting_ > kMaxNesting) Fail(Peek().line, what, " nest more than ", kMaxNesting, " deep");
}

Node ExpressionParser::Make(Evaluator* evaluate, int line, std::vector<Node> children) {
  Node node = {.evaluate = evaluate, .line = line, .children = std::move(children)};
  for (const Node& child : node.children) node.depth = std::max(node.depth, child.depth + 1);
  if (node.depth > kMaxTreeDepth) Fail(line, "an expression nests more than ", kMaxTreeDepth, " deep");
  return node;
}

Node ExpressionParser::ParseExpression() {
  Enter("expressions");
  Node then = ParseBinary(kOrLevel);
  while (IsName("if")) {
    const int line = Next().line;
    Node condition = ParseBinary(kOrLevel);
    then = SkipName("else")
               ? MakeOf(EvaluateConditional, line, std::move(condition), std::move(then), ParseExpression())
               : MakeOf(EvaluateConditional, line, std::move(condition), std::move(then));
  }
  --nesting_;
  return then;
}

Node ExpressionParser::ParseTuple(bool conditional) {
  const auto parse = [&] { return conditional ? ParseExpression() : ParseBinary(kOrLevel); };
  Node first = parse();
  if (!IsOperator(",")) return first;
  const int line = first.line;
  std::vector<Node> items;
  items.push_back(std::move(first));
  while (SkipOperator(",") && !Is(TokenKind::kVariableEnd) && !Is(TokenKind::kBlockEnd)) items.push_back(parse());
  return Make(EvaluateTuple, line, std::move(items));
}

const OperatorRow* ExpressionParser::FindOperator() const {
  const auto* row = std::ranges::find_if(kOperators, [&](const OperatorRow& r) {
    return Is(r.token) && Peek().text == r.text && (r.apply != NotIn || IsName("in", 1));
  });
  return row == std::end(kOperators) ? nullptr : row;
}

// Parses operators of this level and of higher ones.
Node ExpressionParser::ParseBinary(int level) {
  Node left = level <= kNotLevel && IsName("not") ? ParseNot() : ParseUnary(true);
  int last = 0;
  for (const OperatorRow* row = FindOperator(); row != nullptr && row->level >= level; row = FindOperator()) {
    const int line = Next().line;
    if (row->apply == NotIn) Next();
    if (row->level == kComparisonLevel && last == kComparisonLevel) Fail(line, "comparisons cannot be chained");
    left = MakeOf(row->evaluate, line, std::move(left), ParseBinary(row->level + 1));
    left.apply = row->apply;
    last = row->level;
  }
  return left;
}

Node ExpressionParser::ParseNot() {
  const int line = Peek().line;
  int count = 0;
  while (SkipName("not")) ++count;
  Node node = ParseBinary(kComparisonLevel);
  for (; count > 0 && error().ok(); --count) node = MakeOf(EvaluateNot, line, std::move(node));
  return node;
}

Node ExpressionParser::ParseUnary(bool with_filters) {
  Enter("expressions");
  Node node;
  const int line = Peek().line;
  if (SkipOperator("-")) {
    node = MakeOf(EvaluateNegation, line, ParseUnary(false));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  if (with_filters) node = ParseFiltersAndTests(std::move(node));
  --nesting_;
  return node;
}

Node ExpressionParser::ParsePrimary() {
  const int line = Peek().line;
  if (Is(TokenKind::kName)) return ParseNameOrConstant();
  if (Is(TokenKind::kInteger) || Is(TokenKind::kFloat)) return ParseNumber();
  if (Is(TokenKind::kString)) {
    std::string text;
    while (Is(TokenKind::kString)) text += Next().text;
    return MakeLiteral(line, std::move(text));
  }
  if (SkipOperator("(")) return ParseParentheses(line);
  if (SkipOperator("[")) return Make(EvaluateList, line, ParseList("]"));
  if (SkipOperator("{")) return ParseDict(line);
  FailAtToken();
  return {};
}

Node ExpressionParser::ParseNameOrConstant() {
  const Token& token = Next();
  if (token.text == "true" || token.text == "True") return MakeLiteral(token.line, true);
  if (token.text == "false" || token.text == "False") return MakeLiteral(token.line, false);
  if (token.text == "none" || token.text == "None") return MakeLiteral(token.line, None());
  return MakeName(token.line, token.text);
}

Node ExpressionParser::ParseNumber() {
  const auto& [kind, digits, line] = Next();
  if (kind == TokenKind::kFloat) return MakeLiteral(line, std::strtod(digits.c_str(), nullptr));
  if (digits[0] == '0' && digits.find_first_not_of('0') != digits.npos)
    Fail(line, "the number ", digits, " begins with 0");
  int64_t number = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (parsed.ec != std::errc()) Fail(line, "the number ", digits, " exceeds 64 bits");
  return MakeLiteral(line, number);
}

void ExpressionParser::ForEachItem(std::string_view end, absl::FunctionRef<void()> parse) {
  while (error().ok() && !SkipOperator(end)) {
    parse();
    if (!IsOperator(end)) ExpectOperator(",");
  }
}

std::vector<Node> ExpressionParser::ParseList(std::string_view end) {
  std::vector<Node> items;
  ForEachItem(end, [&] { items.push_back(ParseExpression()); });
  return items;
}

Node ExpressionParser::ParseParentheses(int line) {
  if (SkipOperator(")")) return Make(EvaluateTuple, line);
  Node first = ParseExpression();
  if (SkipOperator(")")) return first;
  ExpectOperator(",");
  std::vector<Node> items = ParseList(")");
  items.insert(items.begin(), std::move(first));
  return Make(EvaluateTuple, line, std::move(items));
}

Node ExpressionParser::ParseDict(int line) {
  std::vector<Node> items;
  ForEachItem("}", [&] {
    items.push_back(ParseExpression());
    ExpectOperator(":");
    items.push_back(ParseExpression());
  });
  return Make(EvaluateDict, line, std::move(items));
}

Node ExpressionParser::ParsePostfix(Node node) {
  while (true) {
    const int line = Peek().line;
    if (SkipOperator(".")) {
      const bool index = Is(TokenKind::kInteger);
      Node key = index ? ParseNumber() : MakeLiteral(line, ExpectName());
      node = MakeOf(index ? EvaluateItem : EvaluateAttribute, line, std::move(node), std::move(key));
    } else if (SkipOperator("[")) {
      node = ParseSubscript(std::move(node), line);
    } else if (SkipOperator("(")) {
      node = ParseCall(EvaluateCall, std::move(node), line);
    } else {
      return node;
    }
  }
}

Node ExpressionParser::ParseSubscript(Node object, int line) {
  const auto parse_bound = [&] {
    const bool omitted = IsOperator(":") || IsOperator("]");
    return omitted ? MakeLiteral(line, None()) : ParseExpression();
  };
  if (IsOperator("]")) FailAtToken();
  Node start = parse_bound();
  if (SkipOperator("]")) return MakeOf(EvaluateItem, line, std::move(object), std::move(start));
  ExpectOperator(":");
  Node stop = parse_bound();
  Node step = SkipOperator(":") ? parse_bound() : MakeLiteral(line, None());
  ExpectOperator("]");
  return MakeOf(EvaluateSlice, line, std::move(object), std::move(start), std::move(stop), std::move(step));
}

// Parses the arguments after "(".
Node ExpressionParser::ParseCall(Evaluator* evaluate, Node operand, int line) {
  std::vector<Node> children;
  children.push_back(std::move(operand));
  ForEachItem(")", [&] {
    const bool all = IsOperator("*") || IsOperator("**"), named = Is(TokenKind::kName) && IsOperator("=", 1);
    std::string label = all || named ? Next().text : "";
    if (named) Next();
    if (label.empty() && !children.back().label.empty()) Fail(Peek().line, "a positional argument follows others");
    children.push_back(ParseExpression());
    children.back().label = std::move(label);
  });
  return Make(evaluate, line, std::move(children));
}

Node ExpressionParser::ParseFiltersAndTests(Node node) {
  while (true) {
    const int line = Peek().line;
    if (SkipOperator("|")) {
      node = ParseFilter(std::move(node));
    } else if (SkipName("is")) {
      node = ParseTest(std::move(node));
    } else if (SkipOperator("(")) {
      node = ParseCall(EvaluateCall, std::move(node), line);
    } else {
      return node;
    }
  }
}

Node ExpressionParser::ParseFilter(Node operand) {
  const int line = Peek().line;
  std::string name = ExpectName();
  Node node = SkipOperator("(") ? ParseCall(EvaluateFilter, std::move(operand), line)
                                : MakeOf(EvaluateFilter, line, std::move(operand));
  node.builtin = FindFilter(name);
  node.text = std::move(name);
  return node;
}

// Parses a test. It has arguments in parentheses, or one operand without them: `x is divisibleby 3`.
Node ExpressionParser::ParseTest(Node operand) {
  const int line = Peek().line;
  const bool negated = SkipName("not");
  std::string name = ExpectName();
  Node node;
  if (SkipOperator("(")) {
    node = ParseCall(EvaluateTest, std::move(operand), line);
  } else if (StartsTestOperand()) {
    node = MakeOf(EvaluateTest, line, std::move(operand), ParsePostfix(ParsePrimary()));
  } else {
    node = MakeOf(EvaluateTest, line, std::move(operand));
  }
  node.builtin = FindTest(name);
  node.text = std::move(name);
  return negated ? MakeOf(EvaluateNot, line, std::move(node)) : std::move(node);
}

bool ExpressionParser::StartsTestOperand() {
  if (IsName("is")) Fail(Peek().line, "tests cannot be chained with is");
  if (Is(TokenKind::kName)) return !IsName("else") && !IsName("or") && !IsName("and");
  return Is(TokenKind::kString) || Is(TokenKind::kInteger) || Is(TokenKind::kFloat) || IsOperator("[") ||
         IsOperator("{");
}

}  // namespace onnxtrain::jinja
