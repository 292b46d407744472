// Tokens as people read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "frontend/data/text/tokenizer.h"

namespace onnxtrain::cli {

// The vocabulary of a tokenizer, from the files that it was read from. Immutable.
class TokenText {
 public:
  explicit TokenText(const Tokenizer& tokenizer);

  // Tokens by id, as the file has them; empty where it is one of SentencePiece.
  const std::vector<std::string>& names() const { return names_; }
  // The same with blanks that are seen: "␣", "⇥", "↵".
  std::vector<std::string> VisibleNames() const;
  // The text of tokens, up to what a tokenizer does not keep, such as case or the number of blanks.
  std::string Join(std::span<const int64_t> ids) const;

 private:
  enum class Style : uint8_t { kPlain, kByteLevel, kWordPiece, kMetaspace };
  void Name(int64_t id, const std::string& token);
  Style FindStyle() const;

  std::vector<std::string> names_;
  Style style_ = Style::kPlain;
};

}  // namespace onnxtrain::cli
