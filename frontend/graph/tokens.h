// Tokens, quoting and numbers of the text form of graphs, shared by its printer and parser.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/graph/type.h"

namespace onnxtrain::text {

inline bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }
inline bool IsWordChar(char c) { return IsLetter(c) || IsDigit(c) || c == '.' || c == '/'; }
// Returns true if s is a letter or '_' followed by letters, digits, '_', '.' and '/'.
bool IsWord(std::string_view s);

// Returns s in quotes: "a \"b\"\n". Control characters become \xNN; all other bytes are copied.
std::string Quote(std::string_view s);

std::string ToHex(std::span<const std::byte> bytes);
std::optional<std::string> FromHex(std::string_view hex);

// Convert one element (DTypeSize(dtype) bytes) to text and back, bit for bit. ScanElement also accepts any decimal
// number that fits the type, and "inf", "nan" and "nan(BITS)" for float types.
std::string FormatElement(DType dtype, const std::byte* element);
bool ScanElement(DType dtype, std::string_view token, std::byte* element);

// Formats a float attribute such that it never reads as an integer: "3.0", "1e-05", "inf".
std::string FormatDouble(double value);

struct Token {
  enum Kind { kEnd, kPunctuation, kValue, kWord, kNumber, kString };
  Kind kind = kEnd;
  std::string text;  // without the % of a value; a string is unquoted and unescaped
  int line = 1;

  bool Is(char punctuation) const { return kind == kPunctuation && text[0] == punctuation; }
  bool IsWord(std::string_view word) const { return kind == kWord && text == word; }
  std::string Describe() const;  // text for error messages
};

// Splits the text form of a graph into tokens.
class Lexer {
 public:
  // The text must outlive the Lexer.
  explicit Lexer(std::string_view text) : text_(text) {}
  // Returns the next token, or kEnd at the end of the text, however often it is called.
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
