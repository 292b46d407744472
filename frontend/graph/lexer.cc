#include "frontend/graph/lexer.h"

#include <algorithm>
#include <optional>

#include "frontend/base/status.h"
#include "frontend/graph/text.h"

namespace onnxtrain::text {

std::string Token::Describe() const {
  constexpr size_t kMax = 40;
  if (kind == kEnd) return "the end of the text";
  const std::string part = text.substr(0, kMax) + (text.size() > kMax ? "…" : "");
  if (kind == kString) return Quote(part);
  return StrCat("'", kind == kValue ? "%" : "", part, "'");
}

// Takes `length` characters; the first `skip` of them are not part of the token's text.
Token Lexer::Take(Token::Kind kind, size_t length, size_t skip) {
  Token token{kind, std::string(text_.substr(pos_ + skip, length - skip)), line_};
  pos_ += length;
  return token;
}

void Lexer::SkipBlanks() {
  for (bool comment = false; pos_ < text_.size(); ++pos_) {
    const char c = text_[pos_];
    if (c == '\n') {
      ++line_;
      comment = false;
    } else if (c == '#') {
      comment = true;
    } else if (!comment && c != ' ' && c != '\t' && c != '\r') {
      return;
    }
  }
}

absl::StatusOr<Token> Lexer::Next() {
  SkipBlanks();
  if (pos_ >= text_.size()) return Token{Token::kEnd, "", line_};
  const char c = text_[pos_];
  if (c == '"') return String();
  if (IsLetter(c)) return Word();
  if (IsDigit(c) || c == '-') return Number();
  if (c == '%') {
    size_t length = 1;
    while (IsWordChar(At(pos_ + length))) ++length;
    if (length > 1) return Take(Token::kValue, length, 1);
  }
  if (std::string_view("(){}[],:=@").find(c) != std::string_view::npos) return Take(Token::kPunctuation, 1);
  return Invalid("line ", line_, ": unexpected ", Token{Token::kString, std::string(1, c)}.Describe());
}

Token Lexer::Word() {
  size_t length = 0;
  while (IsWordChar(At(pos_ + length))) ++length;
  // The word includes the bits of a NaN with payload: nan(7fc00001).
  if (text_.substr(pos_, length) == "nan" && At(pos_ + length) == '(') {
    while (pos_ + length < text_.size() && text_[pos_ + length] != ')' && text_[pos_ + length] != '\n') ++length;
    length += At(pos_ + length) == ')';
  }
  return Take(Token::kWord, length);
}

Token Lexer::Number() {
  size_t length = 1;
  auto belongs = [&](char c) {
    const char before = text_[pos_ + length - 1];
    return IsDigit(c) || IsLetter(c) || c == '.' || ((c == '-' || c == '+') && (before == 'e' || before == 'E'));
  };
  while (belongs(At(pos_ + length))) ++length;
  return Take(Token::kNumber, length);
}

absl::StatusOr<Token> Lexer::String() {
  Token token{Token::kString, "", line_};
  for (size_t i = pos_ + 1; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '"') {
      pos_ = i + 1;
      return token;
    }
    if (c == '\n') break;
    if (c != '\\') {
      token.text += c;
    } else if (At(i + 1) == 'x') {
      const auto byte = FromHex(text_.substr(i + 2, std::min<size_t>(2, text_.size() - i - 2)));
      if (!byte.has_value() || byte->size() != 1) return Invalid("line ", line_, ": \\x needs two hexadecimal digits");
      token.text += *byte;
      i += 3;
    } else if (At(i + 1) == '"' || At(i + 1) == '\\') {
      token.text += text_[++i];
    } else {
      return Invalid("line ", line_, ": unknown escape in a string");
    }
  }
  return Invalid("line ", line_, ": a string has no end");
}

}  // namespace onnxtrain::text
