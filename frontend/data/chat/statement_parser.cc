#include "frontend/data/chat/parser.h"

namespace onnxtrain::jinja {
namespace {

constexpr int kMaxBlocks = 60;  // nested statements

class StatementParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  absl::StatusOr<Body> Run() {
    ASSIGN_OR_RETURN(Body body, ParseBody({}));
    return Peek().kind == TokenKind::kEnd ? std::move(body) : absl::StatusOr<Body>(Unexpected());
  }

 private:
  using StatementPtr = std::unique_ptr<const Statement>;
  struct TagRow {
    std::string_view name;
    absl::StatusOr<StatementPtr> (StatementParser::*parse)();
  };

  // Parses up to a tag with one of the names, which is the next token then, or to the end of the template.
  absl::StatusOr<Body> ParseBody(std::initializer_list<std::string_view> ends) {
    if (++blocks_ > kMaxBlocks) return Fail(Peek().line, "statements nest more than ", kMaxBlocks, " deep");
    Body body;
    while (Peek().kind != TokenKind::kEnd && !IsAtEndTag(ends)) {
      if (Peek().kind == TokenKind::kVariableBegin) {
        RETURN_IF_ERROR(ParsePrint(&body));
        continue;
      }
      ASSIGN_OR_RETURN(StatementPtr statement, Peek().kind == TokenKind::kData ? ParseText() : ParseTag());
      body.push_back(std::move(statement));
    }
    if (ends.size() > 0 && Peek().kind == TokenKind::kEnd)
      return Fail(Peek().line, "the template ends where '", *(ends.end() - 1), "' is expected");
    --blocks_;
    return body;
  }

  // Parses "%}", statements, and "{% end %}", where `end` is the last name; returns with one of `ends` next.
  absl::StatusOr<Body> ParseBlock(std::initializer_list<std::string_view> ends) {
    SkipOperator(":");
    RETURN_IF_ERROR(ExpectBlockEnd());
    ASSIGN_OR_RETURN(Body body, ParseBody(ends));
    Next();
    return body;
  }

  absl::StatusOr<Body> ParseWholeBlock(std::string_view end) {
    ASSIGN_OR_RETURN(Body body, ParseBlock({end}));
    Next();
    RETURN_IF_ERROR(ExpectBlockEnd());
    return body;
  }

  bool IsAtEndTag(std::initializer_list<std::string_view> ends) const {
    if (Peek().kind != TokenKind::kBlockBegin) return false;
    return std::ranges::any_of(ends, [&](std::string_view end) { return IsAt(TokenKind::kName, end, 1); });
  }

  absl::Status ExpectBlockEnd() {
    if (Peek().kind != TokenKind::kBlockEnd) return Invalid(Unexpected().message(), ", expected '%}'");
    Next();
    return absl::OkStatus();
  }

  template <typename Node>
  std::unique_ptr<Node> Make() const {
    auto node = std::make_unique<Node>();
    node->line = Peek().line;
    return node;
  }

  absl::StatusOr<StatementPtr> ParseText() {
    auto node = Make<TextStatement>();
    node->text = Next().text;
    return node;
  }

  absl::Status ParsePrint(Body* body) {
    Next();
    auto node = Make<PrintStatement>();
    ASSIGN_OR_RETURN(node->value, ParseTuple(Conditionals::kAllowed));
    if (Peek().kind != TokenKind::kVariableEnd) return Invalid(Unexpected().message(), ", expected '}}'");
    Next();
    body->push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPtr> ParseTag() {
    static constexpr TagRow kTags[] = {{"if", &StatementParser::ParseIf},
                                       {"for", &StatementParser::ParseFor},
                                       {"set", &StatementParser::ParseSet},
                                       {"with", &StatementParser::ParseWith},
                                       {"macro", &StatementParser::ParseMacro},
                                       {"filter", &StatementParser::ParseFilterBlock},
                                       {"generation", &StatementParser::ParseGeneration},
                                       {"break", &StatementParser::ParseFlow},
                                       {"continue", &StatementParser::ParseFlow}};
    if (Peek().kind != TokenKind::kBlockBegin) return Unexpected();
    Next();
    if (Peek().kind != TokenKind::kName) return Unexpected();
    const auto* row = std::ranges::find_if(kTags, [&](const TagRow& tag) { return IsName(tag.name); });
    if (row == std::end(kTags)) return Fail(Peek().line, "unknown or unsupported tag '", Printable(Peek().text), "'");
    return (this->*row->parse)();
  }

  absl::StatusOr<StatementPtr> ParseIf() {
    auto node = Make<IfStatement>();
    while (SkipName("if") || SkipName("elif")) {
      ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple(Conditionals::kExcluded));
      ASSIGN_OR_RETURN(Body body, ParseBlock({"elif", "else", "endif"}));
      node->branches.emplace_back(std::move(condition), std::move(body));
    }
    RETURN_IF_ERROR(ParseElse("endif", &node->otherwise));
    return node;
  }

  absl::StatusOr<StatementPtr> ParseFor() {
    auto node = Make<ForStatement>();
    Next();
    ASSIGN_OR_RETURN(node->target, ParseTarget("in"));
    if (!SkipName("in")) return Invalid(Unexpected().message(), ", expected 'in'");
    ASSIGN_OR_RETURN(node->items, ParseTuple(Conditionals::kExcluded));
    if (SkipName("if")) {
      ASSIGN_OR_RETURN(node->condition, ParseExpression());
    }
    ++loops_;
    ASSIGN_OR_RETURN(node->body, ParseBlock({"else", "endfor"}));
    --loops_;
    RETURN_IF_ERROR(ParseElse("endfor", &node->otherwise));
    return node;
  }

  // Parses the block after an "else" that is next, or skips the end tag that is.
  absl::Status ParseElse(std::string_view end, Body* otherwise) {
    if (!SkipName("else")) {
      Next();
      return ExpectBlockEnd();
    }
    ASSIGN_OR_RETURN(*otherwise, ParseWholeBlock(end));
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPtr> ParseWith() {
    auto node = Make<WithStatement>();
    Next();
    while (Peek().kind != TokenKind::kBlockEnd) {
      if (!node->values.empty()) RETURN_IF_ERROR(ExpectOperator(","));
      ASSIGN_OR_RETURN(Target target, ParseOneTarget());
      RETURN_IF_ERROR(ExpectOperator("="));
      ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      node->values.emplace_back(std::move(target), std::move(value));
    }
    ASSIGN_OR_RETURN(node->body, ParseWholeBlock("endwith"));
    return node;
  }

  // Parses a name, an attribute of a namespace, or a tuple of targets, with or without parentheses.
  absl::StatusOr<Target> ParseTarget(std::string_view end) {
    ASSIGN_OR_RETURN(Target first, ParseOneTarget());
    if (!IsOperator(",")) return first;
    Target tuple;
    tuple.is_tuple = true;
    tuple.items.push_back(std::move(first));
    while (SkipOperator(",") && Peek().kind != TokenKind::kBlockEnd && !IsOperator("=") && !IsOperator(")") &&
           !IsName(end)) {
      ASSIGN_OR_RETURN(Target item, ParseOneTarget());
      tuple.items.push_back(std::move(item));
    }
    return tuple;
  }

  absl::StatusOr<Target> ParseOneTarget() {
    Target target;
    if (SkipOperator("(")) {
      if (++nesting_ > kMaxBlocks) return Fail(Peek().line, "targets nest more than ", kMaxBlocks, " deep");
      ASSIGN_OR_RETURN(target, ParseTarget(""));
      --nesting_;
      RETURN_IF_ERROR(ExpectOperator(")"));
      return target;
    }
    const int line = Peek().line;
    ASSIGN_OR_RETURN(target.name, ExpectName());
    constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    if (std::ranges::find(kReserved, target.name) != std::end(kReserved))
      return Fail(line, "'", target.name, "' cannot be assigned to");
    if (SkipOperator(".")) {
      ASSIGN_OR_RETURN(target.attribute, ExpectName());
    }
    return target;
  }

  absl::StatusOr<StatementPtr> ParseSet() {
    const int line = Next().line;
    ASSIGN_OR_RETURN(Target target, ParseTarget(""));
    if (SkipOperator("=")) {
      auto node = std::make_unique<SetStatement>();
      node->line = line;
      node->target = std::move(target);
      ASSIGN_OR_RETURN(node->value, ParseTuple(Conditionals::kAllowed));
      RETURN_IF_ERROR(ExpectBlockEnd());
      return node;
    }
    auto node = std::make_unique<SetBlockStatement>();
    node->line = line;
    node->target = std::move(target);
    ASSIGN_OR_RETURN(node->filters, ParseFilterChain(IsOperator("|")));
    ASSIGN_OR_RETURN(node->body, ParseWholeBlock("endset"));
    return node;
  }

  absl::StatusOr<std::vector<std::unique_ptr<const FilterExpression>>> ParseFilterChain(bool more) {
    std::vector<std::unique_ptr<const FilterExpression>> filters;
    for (; more; more = IsOperator("|")) {
      SkipOperator("|");
      ASSIGN_OR_RETURN(auto filter, ParseFilter(nullptr));
      filters.push_back(std::move(filter));
    }
    return filters;
  }

  absl::StatusOr<StatementPtr> ParseFilterBlock() {
    auto node = Make<FilterStatement>();
    Next();
    ASSIGN_OR_RETURN(node->filters, ParseFilterChain(true));
    ASSIGN_OR_RETURN(node->body, ParseWholeBlock("endfilter"));
    return node;
  }

  absl::StatusOr<StatementPtr> ParseMacro() {
    auto node = Make<MacroStatement>();
    Next();
    ASSIGN_OR_RETURN(node->name, ExpectName());
    RETURN_IF_ERROR(ExpectOperator("("));
    while (!IsOperator(")")) {
      ASSIGN_OR_RETURN(std::string name, ExpectName());
      ExpressionPtr value;
      if (SkipOperator("=")) {
        ASSIGN_OR_RETURN(value, ParseExpression());
      } else if (!node->parameters.empty() && node->parameters.back().second != nullptr) {
        return Fail(Peek().line, "a parameter without a default follows one with a default");
      }
      node->parameters.emplace_back(name, std::move(value));
      if (!IsOperator(")")) RETURN_IF_ERROR(ExpectOperator(","));
    }
    Next();
    ASSIGN_OR_RETURN(node->body, ParseOuterBlock("endmacro"));
    return node;
  }

  // Parses statements that run outside of the loops around them.
  absl::StatusOr<Body> ParseOuterBlock(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    ASSIGN_OR_RETURN(Body body, ParseWholeBlock(end));
    loops_ = loops;
    return body;
  }

  absl::StatusOr<StatementPtr> ParseGeneration() {
    auto node = Make<GenerationStatement>();
    Next();
    ASSIGN_OR_RETURN(node->body, ParseOuterBlock("endgeneration"));
    return node;
  }

  absl::StatusOr<StatementPtr> ParseFlow() {
    auto node = Make<FlowStatement>();
    if (loops_ == 0) return Fail(node->line, "'", Peek().text, "' outside of a loop");
    node->flow = Next().text == "break" ? Flow::kBreak : Flow::kContinue;
    RETURN_IF_ERROR(ExpectBlockEnd());
    return node;
  }

  int blocks_ = 0;  // statements around the current one
  int loops_ = 0;   // loops around it, up to the body of a macro
};

}  // namespace

absl::StatusOr<Body> ParseTemplate(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Run();
}

}  // namespace onnxtrain::jinja
