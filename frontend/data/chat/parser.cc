// Parses templates by recursive descent, and operators by precedence.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "absl/functional/function_ref.h"
#include "frontend/data/chat/builtins.h"
#include "frontend/data/chat/lexer.h"
#include "frontend/data/chat/operators.h"
#include "frontend/data/chat/syntax.h"

namespace onnxtrain::jinja {
namespace {

// Bounds the recursion of the parser, and of everything that walks its trees.
constexpr int kMaxNesting = 200, kMaxTreeDepth = 200, kMaxBlocks = 60;

// Binary operators. Those of a higher level bind tighter; all join operands from left to right.
struct OperatorRow {
  TokenKind token;
  std::string_view text;
  int level;
  Evaluator* evaluate;
  BinaryOperator apply = nullptr;
};
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

class Parser : private TokenCursor {
 public:
  using TokenCursor::TokenCursor;

  absl::StatusOr<Node> Run(bool* marks_generation) {
    Node body = ParseBody({});
    if (!Is(TokenKind::kEnd)) FailAtToken();
    *marks_generation = marks_generation_;
    return error().ok() ? std::move(body) : absl::StatusOr<Node>(error());
  }

 private:
  struct TagRow {
    std::string_view name;
    Node (Parser::*parse)();
  };

  // Counts the recursion of the parser. Each call is matched by --nesting_.
  void Enter(std::string_view what) {
    if (++nesting_ > kMaxNesting) Fail(Peek().line, what, " nest more than ", kMaxNesting, " deep");
  }

  // Nodes

  Node Make(Evaluator* evaluate, int line, std::vector<Node> children = {}) {
    Node node = {.evaluate = evaluate, .line = line, .children = std::move(children)};
    for (const Node& child : node.children) node.depth = std::max(node.depth, child.depth + 1);
    if (node.depth > kMaxTreeDepth) Fail(line, "an expression nests more than ", kMaxTreeDepth, " deep");
    return node;
  }
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

  // Expressions, from the conditional down to operands

  Node ParseExpression() {
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

  // Parses an expression, or a tuple without parentheses. The condition of a loop follows its items, which therefore
  // are no conditional.
  Node ParseTuple(bool conditional) {
    const auto parse = [&] { return conditional ? ParseExpression() : ParseBinary(kOrLevel); };
    Node first = parse();
    if (!IsOperator(",")) return first;
    const int line = first.line;
    std::vector<Node> items;
    items.push_back(std::move(first));
    while (SkipOperator(",") && !Is(TokenKind::kVariableEnd) && !Is(TokenKind::kBlockEnd)) items.push_back(parse());
    return Make(EvaluateTuple, line, std::move(items));
  }

  const OperatorRow* FindOperator() const {
    const auto* row = std::ranges::find_if(kOperators, [&](const OperatorRow& r) {
      return Is(r.token) && Peek().text == r.text && (r.apply != NotIn || IsName("in", 1));
    });
    return row == std::end(kOperators) ? nullptr : row;
  }

  // Parses operators of this level and of higher ones.
  Node ParseBinary(int level) {
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

  Node ParseNot() {
    const int line = Peek().line;
    int count = 0;
    while (SkipName("not")) ++count;
    Node node = ParseBinary(kComparisonLevel);
    for (; count > 0 && error().ok(); --count) node = MakeOf(EvaluateNot, line, std::move(node));
    return node;
  }

  Node ParseUnary(bool with_filters) {
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

  Node ParsePrimary() {
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

  Node ParseNameOrConstant() {
    const Token& token = Next();
    if (token.text == "true" || token.text == "True") return MakeLiteral(token.line, true);
    if (token.text == "false" || token.text == "False") return MakeLiteral(token.line, false);
    if (token.text == "none" || token.text == "None") return MakeLiteral(token.line, None());
    return MakeName(token.line, token.text);
  }

  Node ParseNumber() {
    const auto& [kind, digits, line] = Next();
    if (kind == TokenKind::kFloat) return MakeLiteral(line, std::strtod(digits.c_str(), nullptr));
    if (digits[0] == '0' && digits.find_first_not_of('0') != digits.npos)
      Fail(line, "the number ", digits, " begins with 0");
    int64_t number = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (parsed.ec != std::errc()) Fail(line, "the number ", digits, " exceeds 64 bits");
    return MakeLiteral(line, number);
  }

  // Calls `parse` for each of the items that commas separate, up to an operator, which it skips.
  void ForEachItem(std::string_view end, absl::FunctionRef<void()> parse) {
    while (error().ok() && !SkipOperator(end)) {
      parse();
      if (!IsOperator(end)) ExpectOperator(",");
    }
  }

  std::vector<Node> ParseList(std::string_view end) {
    std::vector<Node> items;
    ForEachItem(end, [&] { items.push_back(ParseExpression()); });
    return items;
  }

  Node ParseParentheses(int line) {
    if (SkipOperator(")")) return Make(EvaluateTuple, line);
    Node first = ParseExpression();
    if (SkipOperator(")")) return first;
    ExpectOperator(",");
    std::vector<Node> items = ParseList(")");
    items.insert(items.begin(), std::move(first));
    return Make(EvaluateTuple, line, std::move(items));
  }

  Node ParseDict(int line) {
    std::vector<Node> items;
    ForEachItem("}", [&] {
      items.push_back(ParseExpression());
      ExpectOperator(":");
      items.push_back(ParseExpression());
    });
    return Make(EvaluateDict, line, std::move(items));
  }

  Node ParsePostfix(Node node) {
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

  Node ParseSubscript(Node object, int line) {
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
  Node ParseCall(Evaluator* evaluate, Node operand, int line) {
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

  Node ParseFiltersAndTests(Node node) {
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

  // Parses a name and its arguments after "|".
  Node ParseFilter(Node operand) {
    const int line = Peek().line;
    std::string name = ExpectName();
    Node node = SkipOperator("(") ? ParseCall(EvaluateFilter, std::move(operand), line)
                                  : MakeOf(EvaluateFilter, line, std::move(operand));
    node.builtin = FindFilter(name);
    node.text = std::move(name);
    return node;
  }

  // Parses a test. It has arguments in parentheses, or one operand without them: `x is divisibleby 3`.
  Node ParseTest(Node operand) {
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

  bool StartsTestOperand() {
    if (IsName("is")) Fail(Peek().line, "tests cannot be chained with is");
    if (Is(TokenKind::kName)) return !IsName("else") && !IsName("or") && !IsName("and");
    return Is(TokenKind::kString) || Is(TokenKind::kInteger) || Is(TokenKind::kFloat) || IsOperator("[") ||
           IsOperator("{");
  }

  // Statements

  // Parses up to a tag with one of the names, which is the next token then, or to the end of the template.
  Node ParseBody(std::initializer_list<std::string_view> ends) {
    if (++blocks_ > kMaxBlocks) Fail(Peek().line, "statements nest more than ", kMaxBlocks, " deep");
    Node body = {.evaluate = ExecuteBody, .line = Peek().line};
    const auto is_at_end = [&] {
      return Is(TokenKind::kBlockBegin) && std::ranges::any_of(ends, [&](auto end) { return IsName(end, 1); });
    };
    while (!Is(TokenKind::kEnd) && !is_at_end()) body.children.push_back(ParseStatement());
    if (ends.size() > 0 && Is(TokenKind::kEnd))
      Fail(Peek().line, "the template ends where '", *(ends.end() - 1), "' is expected");
    --blocks_;
    return body;
  }

  // Parses "%}" and statements up to one of `ends`, which is the next token then.
  Node ParseBlock(std::initializer_list<std::string_view> ends) {
    SkipOperator(":");
    Expect(TokenKind::kBlockEnd, "%}");
    Node body = ParseBody(ends);
    Next();
    return body;
  }

  // Parses "%}", statements and "{% end %}".
  Node ParseWholeBlock(std::string_view end) {
    Node body = ParseBlock({end});
    Next();
    Expect(TokenKind::kBlockEnd, "%}");
    return body;
  }

  // As ParseWholeBlock, for statements that run outside of the loops around them.
  Node ParseOuterBlock(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Node body = ParseWholeBlock(end);
    loops_ = loops;
    return body;
  }

  // Parses the block after an "else" that is next, or skips the end tag that is.
  Node ParseElse(std::string_view end) {
    if (SkipName("else")) return ParseWholeBlock(end);
    Node empty = {.evaluate = ExecuteBody, .line = Next().line};
    Expect(TokenKind::kBlockEnd, "%}");
    return empty;
  }

  Node ParseStatement() {
    static constexpr TagRow kTags[] = {{"if", &Parser::ParseIf},
                                       {"for", &Parser::ParseFor},
                                       {"set", &Parser::ParseSet},
                                       {"macro", &Parser::ParseMacro},
                                       {"filter", &Parser::ParseFilterBlock},
                                       {"generation", &Parser::ParseGeneration},
                                       {"break", &Parser::ParseFlow},
                                       {"continue", &Parser::ParseFlow}};
    const auto& [kind, text, line] = Next();
    if (kind == TokenKind::kData) return {.evaluate = ExecuteText, .line = line, .text = text};
    if (kind == TokenKind::kVariableBegin) {
      Node node = {.evaluate = ExecutePrint, .line = line};
      node.children.push_back(ParseTuple(true));
      Expect(TokenKind::kVariableEnd, "}}");
      return node;
    }
    if (!Is(TokenKind::kName)) FailAtToken();
    const auto* row = std::ranges::find_if(kTags, [&](const TagRow& tag) { return IsName(tag.name); });
    if (row != std::end(kTags)) return (this->*row->parse)();
    Fail(Peek().line, "unknown or unsupported tag '", Printable(Peek().text), "'");
    return {};
  }

  Node ParseIf() {
    Node node = {.evaluate = ExecuteIf, .line = Peek().line};
    while (SkipName("if") || SkipName("elif")) {
      node.children.push_back(ParseTuple(false));
      node.children.push_back(ParseBlock({"elif", "else", "endif"}));
    }
    node.children.push_back(ParseElse("endif"));
    return node;
  }

  Node ParseFor() {
    Node node = {.evaluate = ExecuteFor, .line = Next().line};
    node.children.push_back(ParseTarget());
    if (!SkipName("in")) FailAtToken(", expected 'in'");
    node.children.push_back(ParseTuple(false));
    std::vector<Node> condition;
    if (SkipName("if")) condition.push_back(ParseExpression());
    ++loops_;
    node.children.push_back(ParseBlock({"else", "endfor"}));
    --loops_;
    node.children.push_back(ParseElse("endfor"));
    if (!condition.empty()) node.children.push_back(std::move(condition[0]));
    return node;
  }

  Node ParseSet() {
    Node node = {.evaluate = ExecuteSet, .line = Next().line};
    node.children.push_back(ParseTarget());
    if (SkipOperator("=")) {
      node.children.push_back(ParseTuple(true));
      Expect(TokenKind::kBlockEnd, "%}");
    } else {
      node.children.push_back(ParseCapture(IsOperator("|"), "endset"));
    }
    return node;
  }

  Node ParseFilterBlock() {
    Node node = {.evaluate = ExecutePrint, .line = Next().line};
    node.children.push_back(ParseCapture(true, "endfilter"));
    return node;
  }

  // Parses the filters of a block, if there are any, and its body, to whose text they are applied.
  Node ParseCapture(bool filtered, std::string_view end) {
    Node value = {.evaluate = EvaluateCapture, .line = Peek().line};
    for (; filtered; filtered = IsOperator("|")) {
      SkipOperator("|");
      value = ParseFilter(std::move(value));
    }
    Node* capture = &value;
    while (capture->evaluate != EvaluateCapture) capture = capture->children.data();
    capture->children.push_back(ParseWholeBlock(end));
    return value;
  }

  // Parses a name, an attribute of a namespace, or a tuple of these, with or without parentheses.
  Node ParseTarget() {
    const int line = Peek().line;
    const bool nested = SkipOperator("(");
    std::vector<Node> items;
    do {
      items.push_back(ParseOneTarget());
    } while (SkipOperator(",") && Is(TokenKind::kName) && !IsName("in"));
    if (nested) ExpectOperator(")");
    return items.size() > 1 ? Make(EvaluateTuple, line, std::move(items)) : std::move(items[0]);
  }

  Node ParseOneTarget() {
    const int line = Peek().line;
    if (!Is(TokenKind::kName)) FailAtToken(", expected a name");
    Node target = ParseNameOrConstant();
    if (target.evaluate == EvaluateLiteral) Fail(line, "a constant cannot be assigned to");
    if (!SkipOperator(".")) return target;
    return MakeOf(EvaluateAttribute, line, std::move(target), MakeLiteral(line, ExpectName()));
  }

  Node ParseMacro() {
    Node node = {.evaluate = ExecuteMacro, .line = Next().line};
    node.text = ExpectName();
    ExpectOperator("(");
    ForEachItem(")", [&] {
      const int line = Peek().line;
      Node parameter = MakeName(line, ExpectName());
      if (SkipOperator("=")) {
        parameter.children.push_back(ParseExpression());
      } else if (!node.children.empty() && !node.children.back().children.empty()) {
        Fail(line, "a parameter without a default follows one with a default");
      }
      node.children.push_back(std::move(parameter));
    });
    node.children.push_back(ParseOuterBlock("endmacro"));
    return node;
  }

  Node ParseGeneration() {
    Node node = {.evaluate = ExecuteGeneration, .line = Next().line};
    Node capture = {.evaluate = EvaluateCapture, .line = node.line};
    capture.children.push_back(ParseOuterBlock("endgeneration"));
    node.children.push_back(std::move(capture));
    marks_generation_ = true;
    return node;
  }

  Node ParseFlow() {
    const auto& [kind, text, line] = Next();
    if (loops_ == 0) Fail(line, "'", text, "' outside of a loop");
    Expect(TokenKind::kBlockEnd, "%}");
    return {.evaluate = text == "break" ? ExecuteBreak : ExecuteContinue, .line = line};
  }

  int nesting_ = 0;  // calls of Enter around the current one
  int blocks_ = 0;   // statements around the current one
  int loops_ = 0;    // loops around it, up to the body of a macro
  bool marks_generation_ = false;
};

}  // namespace

absl::StatusOr<Node> ParseTemplate(std::string_view source, bool* marks_generation) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run(marks_generation);
}

}  // namespace onnxtrain::jinja
