// The stages of a tokenizer, as Hugging Face's tokenizer.json names them: text is normalized, split into pieces
// (pre-tokenized), and each piece becomes token ids by the model. All stages are immutable: any number of threads may
// use them at once. All text is valid UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "frontend/base/strings.h"

namespace onnxtrain {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;  // of a piece that a model without an unknown token does not have
// Called with each piece, which lives only during the call.
using PieceSink = absl::FunctionRef<void(std::string_view)>;

// Returns the end of the piece that begins at `begin` < text.size().
using PieceScanner = size_t (*)(std::string_view text, size_t begin);
// Fills `ends` with the ends of the pieces from `begin` on, until it is full or the text ends; returns how many.
using BatchScanner = size_t (*)(std::string_view text, size_t begin, std::span<size_t> ends);

// What holds for a stage, whatever the text is.
struct StageTraits {
  // Of a normalizer: the result of a text follows from those of its parts between ASCII blanks, which stay what they
  // are, as letters and digits stay visible. Of a pre-tokenizer: spaces, tabs and line ends end pieces and belong to
  // none, so that words are split independently.
  bool splits_at_blanks = false;
  // Of a pre-tokenizer: a space behind an ASCII letter or digit always begins a piece, if it belongs to one. Text may
  // be cut there and its parts split for themselves.
  bool cuts_at_spaces = false;
  // Of a pre-tokenizer: the pieces depend on `first`.
  bool looks_at_place = false;
  bool keeps_text = false;      // of a pre-tokenizer: the text is its only piece
  BatchScanner scan = nullptr;  // of a pre-tokenizer: the pieces are those that it finds, one behind the other
};

// A stage that reads text and has parameters for what it makes of it.
template <typename... Out>
class TextStage {
 public:
  virtual ~TextStage() = default;
  virtual void Run(std::string_view text, Out... out) const = 0;
  virtual StageTraits traits() const { return {}; }
};

// Appends the normalized text to *out: Run(text, out).
using Normalizer = TextStage<std::string*>;
// Emits the pieces of the text in order: Run(text, first, emit). `first`: the text begins the input.
using PreTokenizer = TextStage<bool, PieceSink>;

// A stage whose work is a function.
template <typename F, typename... Out>
class FunctionStage : public TextStage<Out...> {
 public:
  FunctionStage(StageTraits traits, F run) : traits_(traits), run_(std::move(run)) {}
  void Run(std::string_view text, Out... out) const override { run_(text, out...); }
  StageTraits traits() const override { return traits_; }

 private:
  StageTraits traits_;
  F run_;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of a piece.
  virtual void Tokenize(std::string_view piece, std::vector<TokenId>* ids) const = 0;
  virtual std::optional<TokenId> Find(std::string_view token) const = 0;
  virtual TokenId max_id() const = 0;
  // Has every text tokens?
  virtual bool KnowsAll() const { return true; }
};

class Vocabulary {
 public:
  // The last one of equal tokens counts.
  void Add(std::string_view token, TokenId id) {
    max_id_ = std::max(max_id_, id);
    ids_[ToAbsl(token)] = id;
  }
  std::optional<TokenId> Find(std::string_view token) const {
    const auto it = ids_.find(ToAbsl(token));
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
  }
  TokenId max_id() const { return max_id_; }
  size_t size() const { return ids_.size(); }
  const absl::flat_hash_map<std::string, TokenId>& ids() const { return ids_; }

 private:
  absl::flat_hash_map<std::string, TokenId> ids_;
  TokenId max_id_ = -1;
};

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
