// Converts token ids to text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// Converts token ids to text with the vocabulary in a tokenizer's files. Immutable.
class TokenText {
 public:
  explicit TokenText(const Tokenizer& tokenizer);

  // Tokens by id, as in the file.
  const std::vector<std::string>& names() const { return names_; }
  // Returns the text of each token, with visible white space: "␣", "⇥", "↵".
  std::vector<std::string> VisibleNames() const;
  // Returns true if words begin with a blank, which belongs to their first token.
  bool marks_beginnings() const { return style_ == Style::kByteLevel || style_ == Style::kMetaspace; }
  // Returns the text of tokens, without details that the tokenizer discards, such as case or repeated blanks.
  std::string Join(std::span<const int64_t> ids) const;

 private:
  enum class Style : uint8_t { kPlain, kByteLevel, kWordPiece, kMetaspace };
  void Name(int64_t id, const std::string& token);
  Style FindStyle() const;
  std::string ToText(const std::string& token) const;

  std::vector<std::string> names_;
  Style style_ = Style::kPlain;
};

}  // namespace onnxtrain
