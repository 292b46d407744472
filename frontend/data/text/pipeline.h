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
#include "frontend/data/text/unicode.h"

namespace onnxtrain {

using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;  // the id of a piece that a model without an unknown token cannot encode
// Called with each piece, which is valid only during the call.
using PieceSink = absl::FunctionRef<void(std::string_view)>;

// Returns the end of the piece that begins at `begin` < text.size().
using PieceScanner = size_t (*)(std::string_view text, size_t begin);
// Fills `ends` with the ends of the pieces from `begin`, until it is full or the text ends; returns their number.
using BatchScanner = size_t (*)(std::string_view text, size_t begin, std::span<size_t> ends);

// Properties of a stage that hold for every text.
struct StageTraits {
  // Normalizers: parts between ASCII blanks are normalized independently, blanks stay, and letters and digits stay
  // visible. Pre-tokenizers: spaces, tabs and line ends separate pieces and belong to none, so that words are split
  // independently.
  bool splits_at_blanks = false;
  // Pre-tokenizers: a space after an ASCII letter or digit begins a piece or belongs to none. Text may be cut before it
  // and its parts split independently.
  bool cuts_at_spaces = false;
  // Pre-tokenizers: pieces depend on `first`.
  bool depends_on_position = false;
  bool keeps_text = false;      // pre-tokenizers: the whole text is one piece
  BatchScanner scan = nullptr;  // pre-tokenizers: if not null, finds all pieces, which are contiguous
};

// A stage that reads text; `Out` are its further parameters.
template <typename... Out>
class TextStage {
 public:
  virtual ~TextStage() = default;
  virtual void Run(std::string_view text, Out... out) const = 0;
  virtual StageTraits traits() const { return {}; }
};

// Appends the normalized text to *out: Run(text, out).
using Normalizer = TextStage<std::string*>;
// Emits the pieces of the text in order: Run(text, first, emit). `first`: the text is the beginning of the input.
using PreTokenizer = TextStage<bool, PieceSink>;

// A stage that calls a function.
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

using NormalizerPtr = std::unique_ptr<const Normalizer>;

struct BertOptions {
  bool clean_text = true, chinese = true, strip_accents = true, lowercase = true;
};
// Removes control characters, puts spaces around ideographs, strips accents (NFD without Mn) and lower-cases, in this
// order.
NormalizerPtr MakeBertNormalizer(const BertOptions& options);
NormalizerPtr MakeFormNormalizer(NormalForm form);
NormalizerPtr MakeLowercase();
NormalizerPtr MakeStripAccents();  // removes marks without decomposing characters
NormalizerPtr MakeStrip(bool left, bool right);
NormalizerPtr MakePrepend(std::string prefix);  // leaves empty texts unchanged
NormalizerPtr MakeReplace(std::string text, std::string with);
// Fails on an invalid expression.
absl::StatusOr<NormalizerPtr> MakeRegexReplace(const std::string& expression, std::string with);
NormalizerPtr MakeNormalizerSequence(std::vector<NormalizerPtr> steps);

// SentencePiece's table of normalizations, "Precompiled" in tokenizer.json: a double-array trie (Darts-clone) of
// character sequences with their replacements.
class Charsmap {
 public:
  // Parses a charsmap: the size of the trie, its units of 32 bits, and texts that end in NUL. Fails on inconsistent
  // sizes.
  static absl::StatusOr<Charsmap> Parse(std::string_view bytes);

  // Returns the replacement of the shortest prefix of `text` in the table, as Hugging Face's `tokenizers` do; nullopt
  // if there is none.
  std::optional<std::string_view> Find(std::string_view text) const;

 private:
  std::optional<uint32_t> FindShortest(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

// Replaces grapheme clusters of less than 6 bytes, else single characters, that are in the table.
NormalizerPtr MakeCharsmapNormalizer(Charsmap charsmap);

using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

// How to treat the matches of a pattern that splits text.
enum class SplitBehavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

PreTokenizerPtr MakeBertPreTokenizer();  // drops blanks, isolates punctuation
PreTokenizerPtr MakeWhitespaceSplit();
PreTokenizerPtr MakeWhitespaceWords();  // \w+|[^\w\s]+
PreTokenizerPtr MakePunctuation(SplitBehavior behavior);
PreTokenizerPtr MakeDigits(bool individual);
PreTokenizerPtr MakeCharDelimiter(char32_t delimiter);
PreTokenizerPtr MakeChars();  // one piece per character
// Splits into GPT-2's pieces. `prefix_space`: prepends a space unless the text begins with one. Without `use_regex` the
// text is one piece. Pieces stay bytes, since the vocabulary is mapped to bytes instead.
PreTokenizerPtr MakeByteLevel(bool prefix_space, bool use_regex);
// Splits at occurrences of a literal text.
PreTokenizerPtr MakeSplit(const std::string& text, SplitBehavior behavior, bool invert);
// Splits at matches of an expression. Those of GPT-2, cl100k, Llama-3 and Qwen are hand-coded; others run through ICU.
// Fails on an invalid expression.
absl::StatusOr<PreTokenizerPtr> MakeRegexSplit(const std::string& expression, SplitBehavior behavior, bool invert);

enum class PrependScheme : uint8_t { kNever, kFirst, kAlways };
// Replaces spaces by `replacement`, prepends it as `scheme` says, and begins pieces at it if `split`.
PreTokenizerPtr MakeMetaspace(std::string replacement, PrependScheme scheme, bool split);
PreTokenizerPtr MakePreTokenizerSequence(std::vector<PreTokenizerPtr> steps);

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of a piece.
  virtual void Tokenize(std::string_view piece, std::vector<TokenId>* ids) const = 0;
  virtual std::optional<TokenId> Find(std::string_view token) const = 0;
  virtual TokenId max_id() const = 0;
  // Returns the token of an id up to max_id(); "" if the files of the tokenizer list its tokens.
  virtual std::string Name(TokenId id) const { return ""; }
  // Returns true if every text can be encoded.
  virtual bool CanEncodeAll() const { return true; }
};

class Vocabulary {
 public:
  // A token that is added again gets the new id.
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
  int64_t max_chars = 100;  // longer pieces are unknown
};
// Makes a WordPiece model: greedy longest match from left to right (Devlin et al., 1810.04805). Fails if `unknown` is
// not in the vocabulary.
absl::StatusOr<TokenModelPtr> MakeWordPiece(WordPieceSpec spec);

// Makes a model with one token per piece.
absl::StatusOr<TokenModelPtr> MakeWordLevel(Vocabulary vocabulary, const std::string& unknown);

struct BpeSpec {
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // pairs of tokens to merge, in order of priority
  std::string unknown;                                      // "": drops characters that are not in the vocabulary
  std::string prefix, suffix;  // added to characters that do not begin a piece, or that end one
  bool byte_level = false;     // tokens are bytes in GPT-2's alphabet
  bool fuse_unknown = false, byte_fallback = false;
  bool ignore_merges = false;  // a piece that equals a token is encoded as that token
};
// Makes a byte-pair encoding model (Sennrich et al., 1508.07909); O(n log n) for a piece of length n. Fails on merges
// of tokens that are not in the vocabulary.
absl::StatusOr<TokenModelPtr> MakeBpe(BpeSpec spec);

struct UnigramSpec {
  std::vector<std::pair<std::string, double>> tokens;  // tokens with scores; the id is the index
  std::optional<TokenId> unknown;
  bool byte_fallback = false;
};
// Makes a Unigram model: the most probable segmentation (Kudo, 1804.10959). Fails if `unknown` is not a token.
absl::StatusOr<TokenModelPtr> MakeUnigram(UnigramSpec spec);

// Returns the bytes that a token in GPT-2's alphabet stands for; nullopt if a character is not in the alphabet.
std::optional<std::string> BytesOfToken(std::string_view token);

// Returns "<0x0A>" for byte 10: the tokens of characters that are not in a vocabulary.
std::string ByteToken(unsigned char byte);

}  // namespace onnxtrain
