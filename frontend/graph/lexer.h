// Splits the text form of a graph into tokens.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onnxtrain::text {

struct Token {
  enum Kind { kEnd, kPunctuation, kValue, kWord, kNumber, kString };
  Kind kind = kEnd;
  std::string text;  // without the % of a value, the quotes and escapes of a string
  int line = 1;

  bool Is(char punctuation) const { return kind == kPunctuation && text[0] == punctuation; }
  bool IsWord(std::string_view word) const { return kind == kWord && text == word; }
  std::string Describe() const;  // for messages
};

class Lexer {
 public:
  // The text must outlive the Lexer.
  explicit Lexer(std::string_view text) : text_(text) {}
  // Returns the next token; kEnd at the end, as often as it is called.
  absl::StatusOr<Token> Next();

 private:
  void SkipBlanks();
  absl::StatusOr<Token> String();
  Token Word();
  Token Number();
  char At(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  Token Take(Token::Kind kind, size_t length, size_t skip = 0);

  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
};

}  // namespace onnxtrain::text
