// Tokenizers: text to token ids, equal to Hugging Face's `tokenizers` for the files that they read.
//
//   auto tokenizer = LoadTokenizer("tokenizer.json");
//   TokenizerScratch scratch;                       // one per thread
//   std::vector<TokenId> ids;
//   (*tokenizer)->Encode("some text", &scratch, &ids);
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/token_cache.h"

namespace onnxtrain {

// A token that is found in text before it is split: a special token, or one that was added to a vocabulary.
struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;                      // matches only between non-word characters
  bool left_strip = false, right_strip = false;  // the match includes spaces before or after it
  bool normalized = false;                       // searched in normalized text instead of the original
};

// Finds added tokens: the leftmost, and among those the longest.
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens = {});

  bool empty() const { return tokens_.empty(); }
  // Calls text_between(piece) and token(id, match) in the order of the text. Pieces and matches are not empty.
  void Split(std::string_view text, absl::FunctionRef<void(std::string_view)> text_between,
             absl::FunctionRef<void(TokenId, std::string_view)> token) const;

 private:
  const AddedToken* FindAt(std::string_view text, size_t at) const;
  size_t FindCandidate(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;                       // sorted by first byte, then by decreasing length
  std::vector<std::pair<uint32_t, uint32_t>> by_first_;  // range [begin, end) of tokens_ for each first byte
  std::bitset<65536> pairs_;                             // set of the first two bytes of tokens
  std::optional<char> only_first_;                       // first byte, if all tokens share it
};

// A part of the template of a sample: a text or special tokens, as in [CLS] A [SEP] B [SEP].
struct TemplatePart {
  enum class Kind : uint8_t { kFirst, kSecond, kSpecial } kind = Kind::kFirst;
  std::vector<TokenId> ids = {};  // ids of a kSpecial part
  int32_t type = 0;               // token type id
};
using SampleTemplate = std::vector<TemplatePart>;

// The parts of a tokenizer.
struct TokenizerParts {
  std::unique_ptr<const Normalizer> normalizer;       // null: none
  std::unique_ptr<const PreTokenizer> pre_tokenizer;  // null: the text is one piece
  std::unique_ptr<const TokenModel> model;
  std::vector<AddedToken> added;
  SampleTemplate single = {{.kind = TemplatePart::Kind::kFirst}};
  SampleTemplate pair = {{.kind = TemplatePart::Kind::kFirst},
                         {.kind = TemplatePart::Kind::kSecond, .ids = {}, .type = 1}};
  std::optional<TokenId> pad;  // nullopt: found by its usual names
  std::string description;     // text for messages: "WordPiece, 30522 tokens, lower case"
  // Names and contents of the files it was read from, which can be saved next to a model and loaded again.
  std::vector<std::pair<std::string, std::string>> files;
};

// A cache of words and buffers for calls of one thread to one tokenizer.
struct TokenizerScratch {
  TokenCache cache;
  std::string normalized;
  std::vector<TokenId> ids;  // ids of one word
};

// A part of a text that is encoded independently.
struct TextPart {
  std::string_view text = {};
  bool first = false;        // it is the beginning of the text
  TokenId added = kNoToken;  // the added token that the part is, or kNoToken
};

// Immutable: any number of threads may call it at once, each with its own scratch.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);

  // Appends the ids of the text without the template's special tokens. Fails if the text is not UTF-8 or cannot be
  // encoded.
  absl::Status Encode(std::string_view text, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;

  // Cuts a text for several threads into views of about `bytes` bytes, where the stages allow it. The ids of the parts
  // (EncodePart), concatenated, are those of Encode, which fails if Cut or CheckKnown fails.
  absl::StatusOr<std::vector<TextPart>> Cut(std::string_view text, size_t bytes) const;
  void EncodePart(const TextPart& part, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;
  absl::Status CheckKnown(std::span<const TokenId> ids) const;  // takes all ids of a text

  const SampleTemplate& single() const { return parts_.single; }
  const SampleTemplate& pair() const { return parts_.pair; }
  TokenId pad() const { return pad_; }
  // Returns the maximum id + 1, the minimum of rows of an embedding table.
  int64_t id_count() const { return id_count_; }
  std::optional<TokenId> FindToken(std::string_view token) const;
  // Returns the names of the model's tokens by id, if its files do not list them as text; else empty names.
  std::vector<std::string> ModelNames() const;
  const std::string& description() const { return parts_.description; }
  const std::vector<std::pair<std::string, std::string>>& files() const { return parts_.files; }

 private:
  void EncodeNormalized(std::string_view text, bool first, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;
  void EncodePieces(std::string_view text, bool first, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;
  void EncodeWord(std::string_view word, TokenizerScratch* scratch) const;
  void EncodeWords(std::string_view text, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;

  TokenizerParts parts_;
  AddedTokenFinder raw_added_, normalized_added_;
  StageTraits pieces_;     // traits of the pre-tokenizer
  bool by_words_ = false;  // words between blanks are encoded independently
  bool may_cut_ = false;   // text may be cut before a space after a letter or digit
  TokenId pad_;
  int64_t id_count_;
};

// Loads a tokenizer.json, a vocab.txt (BERT), a vocab.json or merges.txt in the same folder (GPT-2), a SentencePiece
// .model, or a folder with one of these. Fails, naming it, on any unsupported feature. Messages begin with the path.
absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadTokenizer(const std::string& path);
// Returns true if the folder has such a file.
bool HoldsTokenizer(const std::string& folder);

// Adds the characters of a text to `chars`. Fails if the text is not UTF-8.
absl::Status CollectChars(std::string_view text, std::set<char32_t>* chars);
// Makes the tokenizer of a character-level model: one token per character in the order of code points, followed by an
// unknown token if `unknown`; without it, text with other characters cannot be encoded. Its file is a tokenizer.json.
absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeCharTokenizer(const std::set<char32_t>& chars, bool unknown);

// One sample with its special tokens.
struct EncodedSample {
  std::vector<TokenId> ids;
  std::vector<int32_t> types;
  bool truncated = false;
};
// Puts the ids of one or two texts into the template, truncated to `max_length` tokens in total (0: no limit), the
// longer text first, as Hugging Face's longest_first. Fails if the special tokens alone exceed the limit.
absl::Status FillTemplate(const SampleTemplate& layout, std::vector<TokenId> first, std::vector<TokenId> second,
                          int64_t max_length, EncodedSample* sample);

}  // namespace onnxtrain
