// Parses tokenizer files: Hugging Face's tokenizer.json, and vocabulary files, which say less, so that the rest is
// inferred from the models that use them.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// The name of a file of a tokenizer, and what it is for.
struct TokenizerFileName {
  enum class Role : uint8_t {
    kVocabulary,  // opens the tokenizer
    kPart,        // completes a vocabulary, or is for other programs
    kSettings     // says how texts begin and end, and how a chat becomes text: belongs to Tokenizer::files()
  };
  const char* name;
  Role role;
};
// Returns the names, those with a vocabulary first, of which the first in a folder is the most complete.
std::span<const TokenizerFileName> TokenizerFileNames();

// Parses BERT's vocab.txt, one token per line. Lower-cases text if `lowercase`; by default, if no token other than
// special ones in brackets has an upper-case ASCII letter.
absl::StatusOr<TokenizerParts> ParseWordPieceVocabulary(const std::string& text, std::optional<bool> lowercase);

// Parses GPT-2's vocab.json and merges.txt. Adds <s> before and </s> after each text, as in RoBERTa, if `wraps`; by
// default, if the vocabulary has both.
absl::StatusOr<TokenizerParts> ParseGpt2Vocabulary(const std::string& vocab_json, const std::string& merges,
                                                   std::optional<bool> wraps);

// Parses a SentencePiece model. Adds its begin and end tokens to each text if it has them.
absl::StatusOr<TokenizerParts> ParseSentencePiece(const std::string& bytes);

// Parses tokenizer.json. Fails, naming them, on unknown parts and on unsupported options that change ids.
absl::StatusOr<TokenizerParts> ParseTokenizerJson(const std::string& text);

}  // namespace onnxtrain
