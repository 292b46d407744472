// Splits the source of a template into tokens, with Jinja's whitespace control under trim_blocks and lstrip_blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/base/status.h"

namespace onnxtrain::jinja {

enum class TokenKind : uint8_t {
  kData,  // text between tags
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // without quotes and escapes
  int line = 0;
};

// The last token is kEnd. Errors begin with "line N: ". `source` is valid UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// A position in a list of tokens. The first error is kept, and moves to the last token, which ends all loops.
class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const absl::Status& error() const { return error_; }

  const Token& Peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& Next() {
    const Token& token = Peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool Is(TokenKind kind, size_t ahead = 0) const { return Peek(ahead).kind == kind; }
  bool IsName(std::string_view name, size_t ahead = 0) const {
    return Is(TokenKind::kName, ahead) && Peek(ahead).text == name;
  }
  bool IsOperator(std::string_view text, size_t ahead = 0) const {
    return Is(TokenKind::kOperator, ahead) && Peek(ahead).text == text;
  }
  // Skip the token if it is next; return whether it was.
  bool SkipName(std::string_view name) { return IsName(name) && Skip(); }
  bool SkipOperator(std::string_view text) { return IsOperator(text) && Skip(); }
  // Skip the token, or fail if another one is next.
  void ExpectOperator(std::string_view text) {
    if (!SkipOperator(text)) FailAtToken(StrCat(", expected '", text, "'"));
  }
  void Expect(TokenKind kind, std::string_view text) {
    if (!Is(kind)) FailAtToken(StrCat(", expected '", text, "'"));
    Next();
  }
  std::string ExpectName() {
    if (!Is(TokenKind::kName)) FailAtToken(", expected a name");
    return Next().text;
  }

  template <typename... Args>
  void Fail(int line, const Args&... message) {
    if (error_.ok()) error_ = Invalid("line ", line, ": ", message...);
    at_ = tokens_.size() - 1;
  }
  // Fails since the next token is unexpected.
  void FailAtToken(std::string_view expected = "") {
    constexpr std::string_view kKinds[] = {
        "text", "'{{'", "'}}'", "'{%'", "'%}'", "name", "text", "number", "number", "operator", "end of the template"};
    const Token& token = Peek();
    const bool has_text = token.kind >= TokenKind::kName && token.kind != TokenKind::kEnd;
    Fail(token.line, "unexpected ", kKinds[static_cast<int>(token.kind)],
         has_text ? StrCat(" '", Printable(token.text), "'") : "", expected);
  }

 private:
  bool Skip() {
    Next();
    return true;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  absl::Status error_;
};

}  // namespace onnxtrain::jinja
