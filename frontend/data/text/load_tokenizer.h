// Vocabularies in files of their own, which say less than a tokenizer.json: the rest follows from the models that use
// them.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// BERT's vocab.txt: one token a line. Lower-cases unless `lowercase` says otherwise; without it, where no token has an
// upper-case ASCII letter besides special ones in brackets.
absl::StatusOr<TokenizerParts> ParseWordPieceVocabulary(const std::string& text, std::optional<bool> lowercase);

// GPT-2's vocab.json and merges.txt. Adds <s> before and </s> after each text, as RoBERTa does, where the vocabulary
// has both and `wraps` does not say otherwise.
absl::StatusOr<TokenizerParts> ParseGpt2Vocabulary(const std::string& vocab_json, const std::string& merges,
                                                   std::optional<bool> wraps);

// A SentencePiece model. Adds its begin and end tokens to each text where it has them.
absl::StatusOr<TokenizerParts> ParseSentencePiece(const std::string& bytes);

}  // namespace onnxtrain
