// The models of tokenizer.json: pieces to token ids.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/text/pipeline.h"

namespace onnxtrain {

using TokenModelPtr = std::unique_ptr<const TokenModel>;

struct WordPieceSpec {
  Vocabulary vocabulary;
  std::string unknown = "[UNK]", prefix = "##";
  int64_t max_chars = 100;  // of a piece; longer ones are unknown
};
// The longest token first, from left to right (Devlin et al., 1810.04805). Fails where `unknown` is not in the
// vocabulary.
absl::StatusOr<TokenModelPtr> MakeWordPiece(WordPieceSpec spec);

// A token for each piece.
absl::StatusOr<TokenModelPtr> MakeWordLevel(Vocabulary vocabulary, const std::string& unknown);

struct BpeSpec {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // the first is applied first
  std::string unknown;                                      // "": characters that are not in the vocabulary are dropped
  std::string prefix, suffix;                               // of characters that do not begin, or that end a piece
  bool byte_level = false;                                  // tokens spell bytes in GPT-2's alphabet
  bool fuse_unknown = false, byte_fallback = false;
  bool ignore_merges = false;  // a piece that is a token is that token
};
// Byte-pair encoding (Sennrich et al., 1508.07909); n log n in the length of a piece. Fails on merges of what is not in
// the vocabulary.
absl::StatusOr<TokenModelPtr> MakeBpe(BpeSpec spec);

struct UnigramSpec {
  std::vector<std::pair<std::string, double>> tokens;  // with their scores; the id is the place
  std::optional<TokenId> unknown;
  bool byte_fallback = false;
};
// The most probable segmentation (Kudo, 1804.10959). Fails where `unknown` is no token.
absl::StatusOr<TokenModelPtr> MakeUnigram(UnigramSpec spec);

// The bytes that a token in GPT-2's alphabet spells; nullopt where a character is not in the alphabet.
std::optional<std::string> BytesOfToken(std::string_view token);

// "<0x0A>" for each byte: tokens of characters that are not in a vocabulary.
std::string ByteToken(unsigned char byte);

}  // namespace onnxtrain
