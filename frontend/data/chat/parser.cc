// Parses the statements of templates by recursive descent.
#include <algorithm>

#include "frontend/data/chat/expression_parser.h"

namespace onnxtrain::jinja {
namespace {

constexpr int kMaxBlocks = 60;  // bounds the recursion of the parser, and of everything that walks its trees

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

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

  int blocks_ = 0;  // statements around the current one
  int loops_ = 0;   // loops around it, up to the body of a macro
  bool marks_generation_ = false;
};

}  // namespace

absl::StatusOr<Node> ParseTemplate(std::string_view source, bool* marks_generation) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run(marks_generation);
}

}  // namespace onnxtrain::jinja
