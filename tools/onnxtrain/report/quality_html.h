// Shows predictions for evaluation samples as HTML: tables by class, and single samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "frontend/data/text/tokenizer.h"
#include "optim/loop/trainer.h"
#include "optim/record/quality.h"

namespace onnxtrain::cli {

// Returns accuracy and calibration before (may be null) and after training, results by class, and the confusion matrix,
// or the most confused pairs if there are many classes.
std::string QualityHtml(const Quality* before, const Quality& after, const std::vector<std::string>& names);

// Converts token ids to text with the vocabulary in a tokenizer's files. Immutable.
class TokenText {
 public:
  explicit TokenText(const Tokenizer& tokenizer);

  // Tokens by id, as in the file; empty for SentencePiece files.
  const std::vector<std::string>& names() const { return names_; }
  // Returns the tokens with visible white space: "␣", "⇥", "↵".
  std::vector<std::string> VisibleNames() const;
  // Returns the text of tokens, without details that the tokenizer discards, such as case or repeated blanks.
  std::string Join(std::span<const int64_t> ids) const;

 private:
  enum class Style : uint8_t { kPlain, kByteLevel, kWordPiece, kMetaspace };
  void Name(int64_t id, const std::string& token);
  Style FindStyle() const;

  std::vector<std::string> names_;
  Style style_ = Style::kPlain;
};

// Shows the columns of text of a sample, or else the value of the first input: images as pictures, token ids as text if
// `tokens` names them, other values as numbers. Returns "" for unreadable or overly long values.
std::string SampleHtml(const TrainData& data, int64_t sample, const TokenText* tokens);

// Shows the classes of labels and predictions as two pictures if the shape `labels` is [height, width] or
// [1, height, width]; otherwise returns "".
std::string ClassMapsHtml(const SampleResult& result, const Shape& labels);

}  // namespace onnxtrain::cli
