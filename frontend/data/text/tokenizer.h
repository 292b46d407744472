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
#include "frontend/data/text/normalizers.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/pre_tokenizers.h"
#include "frontend/data/text/token_cache.h"

namespace onnxtrain {

// Tokens that are found in text before it is split: special tokens and those that were added to a vocabulary.

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;                      // no word character may be beside it
  bool left_strip = false, right_strip = false;  // takes in the spaces before or behind it
  bool normalized = false;                       // found in normalized text
};

// Finds tokens, the leftmost first and of these the longest.
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::vector<AddedToken> tokens = {});

  bool empty() const { return tokens_.empty(); }
  // Calls text_between(piece) and token(id) in the order of the text. Pieces may be empty at no place.
  void Split(std::string_view text, absl::FunctionRef<void(std::string_view)> text_between,
             absl::FunctionRef<void(TokenId)> token) const;

 private:
  const AddedToken* FindAt(std::string_view text, size_t at) const;
  size_t FindCandidate(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;                       // by first byte, then the longest first
  std::vector<std::pair<uint32_t, uint32_t>> by_first_;  // [begin, end) of tokens_, by first byte
  std::bitset<65536> pairs_;                             // the first two bytes of tokens
  std::optional<char> only_first_;                       // the byte that all tokens begin with
};

// Where special tokens and texts stand in a sample: [CLS] A [SEP] or [CLS] A [SEP] B [SEP].
struct TemplatePart {
  enum class Kind : uint8_t { kFirst, kSecond, kSpecial } kind = Kind::kFirst;
  std::vector<TokenId> ids = {};  // of kSpecial
  int32_t type = 0;               // token type id
};
using SampleTemplate = std::vector<TemplatePart>;

// What a tokenizer consists of.
struct TokenizerParts {
  std::unique_ptr<const Normalizer> normalizer;       // null: none
  std::unique_ptr<const PreTokenizer> pre_tokenizer;  // null: the text is one piece
  std::unique_ptr<const TokenModel> model;
  std::vector<AddedToken> added;
  SampleTemplate single = {{.kind = TemplatePart::Kind::kFirst}};
  SampleTemplate pair = {{.kind = TemplatePart::Kind::kFirst},
                         {.kind = TemplatePart::Kind::kSecond, .ids = {}, .type = 1}};
  std::optional<TokenId> pad;  // empty: found by its usual names
  std::string description;     // "WordPiece, 30522 tokens, lower case": for people
  // The file, or files, that it was read from: their bytes, by name. Written beside a model, they load again.
  std::vector<std::pair<std::string, std::string>> files;
};

// Memory that calls of one thread share: a cache of words and buffers. Belongs to one tokenizer.
struct TokenizerScratch {
  TokenCache cache;
  std::string normalized;
  std::vector<TokenId> ids;  // of one word
};

// A part of a text whose ids depend on no other: text, or an added token where the text is empty.
struct TextPart {
  std::string_view text = {};
  bool first = false;  // it begins the text
  TokenId added = kNoToken;
};

// Immutable: any number of threads may call it at once, each with a scratch of its own.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);

  // Appends the ids of the text, without special tokens around it. Fails where it is not UTF-8, or has no
  // tokens.
  absl::Status Encode(std::string_view text, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;

  // Cuts a text for several threads: the ids of its parts (EncodePart), one behind the other, are those of Encode,
  // which fails where Cut or CheckKnown do. Parts have about `bytes` bytes where the stages allow to cut there; views
  // of the text.
  absl::StatusOr<std::vector<TextPart>> Cut(std::string_view text, size_t bytes) const;
  void EncodePart(const TextPart& part, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;
  absl::Status CheckKnown(std::span<const TokenId> ids) const;  // all ids of a text

  const SampleTemplate& single() const { return parts_.single; }
  const SampleTemplate& pair() const { return parts_.pair; }
  TokenId pad() const { return pad_; }
  // The greatest id + 1: rows that an embedding table must have.
  int64_t id_count() const { return id_count_; }
  std::optional<TokenId> FindToken(std::string_view token) const;
  const std::string& description() const { return parts_.description; }
  const std::vector<std::pair<std::string, std::string>>& files() const { return parts_.files; }

 private:
  void EncodeNormalized(std::string_view text, bool first, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;
  void EncodePieces(std::string_view text, bool first, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;
  void EncodeWord(std::string_view word, TokenizerScratch* scratch) const;
  void EncodeWords(std::string_view text, TokenizerScratch* scratch, std::vector<TokenId>* ids) const;

  TokenizerParts parts_;
  AddedTokenFinder raw_added_, normalized_added_;
  StageTraits pieces_;     // of the pre-tokenizer
  bool by_words_ = false;  // words between blanks are independent of each other
  bool may_cut_ = false;   // so is text from a space behind a letter or digit on
  TokenId pad_;
  int64_t id_count_;
};

// Reads a tokenizer.json, a vocab.txt (BERT), a vocab.json or merges.txt beside each other (GPT-2), a SentencePiece
// .model, or a folder that has one of them. Everything that the file asks for and that is not supported is an error
// that names it; messages begin with the path.
absl::StatusOr<std::shared_ptr<const Tokenizer>> LoadTokenizer(const std::string& path);
// Returns whether the folder has such a file.
bool HoldsTokenizer(const std::string& folder);

// Adds the characters of a text. Fails where it is not UTF-8.
absl::Status CollectChars(std::string_view text, std::set<char32_t>* chars);
// A token for each of these characters, in the order of code points: character-level models. Without an unknown token
// behind them, text with other characters fails to encode. Its file is a tokenizer.json.
absl::StatusOr<std::shared_ptr<const Tokenizer>> MakeCharTokenizer(const std::set<char32_t>& chars, bool unknown);

// One sample with its special tokens.
struct EncodedSample {
  std::vector<TokenId> ids;
  std::vector<int32_t> types;
  bool truncated = false;
};
// Puts the ids of one or two texts into the template, truncated to `max_length` tokens together (the longer text
// first, as Hugging Face's longest_first); 0: no limit. Fails where the special tokens alone are too many.
absl::Status FillTemplate(const SampleTemplate& layout, std::vector<TokenId> first, std::vector<TokenId> second,
                          int64_t max_length, EncodedSample* sample);

}  // namespace onnxtrain
