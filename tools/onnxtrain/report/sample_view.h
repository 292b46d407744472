// One sample as HTML: its text, a picture where it is an image, else its numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "frontend/data/text/tokenizer.h"
#include "optim/loop/trainer.h"
#include "optim/record/quality.h"

namespace onnxtrain::cli {

// Tokens as people read them.

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

// Shows columns of text, else what feeds the first input; token ids as text where `tokens` has their names. "" where it
// cannot be read or has too many numbers to be of use.
std::string SampleHtml(const TrainData& data, int64_t sample, const TokenText* tokens);

// The classes of labels and predictions at the positions of a sample, as two pictures, where the labels are one:
// [height, width] or [1, height, width] is `labels`. Else "".
std::string ClassMapsHtml(const SampleResult& result, const Shape& labels);

}  // namespace onnxtrain::cli
