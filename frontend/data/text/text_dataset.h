// Tokenizes text columns: to columns of tokens per sample, or to one sequence of all documents.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// The contents of a token column, an i64 value per position.
enum class TokenRole : uint8_t { kIds, kMask, kPadding, kTypes, kPositions };

struct TokenRoleName {
  TokenRole role;
  const char* name;  // the column is called TEXT.NAME
  const char* what;  // description of the values for messages
};
inline constexpr TokenRoleName kTokenRoles[] = {{TokenRole::kIds, "ids", "token ids"},
                                                {TokenRole::kMask, "mask", "1, at padding 0"},
                                                {TokenRole::kPadding, "padding", "0, at padding 1"},
                                                {TokenRole::kTypes, "types", "0, in the second text 1"},
                                                {TokenRole::kPositions, "positions", "0, 1, 2, …"}};

struct TextOptions {
  std::vector<std::string> columns;  // names of one text column, or two for pairs
  int64_t max_length = 0;            // limit on the tokens of a sample, including special ones; 0: none
  bool skip_bad = false;             // a text that cannot be tokenized makes its sample unreadable instead of failing
  int threads = 1;
  int64_t fixed_length = 0;  // length that all samples are padded to; 0: none
};

// Returns the error that a column is not text and cannot be tokenized.
absl::Status NotTextError(const Column& column);
// Returns the error that the columns do not include a text column `name`.
absl::Status UnknownTextColumnError(const std::string& name, const std::vector<Column>& columns);

// A view of a data set with a column "TEXT.NAME" for each of kTokenRoles appended, where TEXT is the first text column.
// They are variable (Column::variable): a sample has the length of its tokens, at least 1.
struct TokenizedText {
  std::shared_ptr<const Dataset> dataset;
  int first_column = 0;  // index of the first token column; the others follow in the order of kTokenRoles
  int64_t longest = 0, tokens = 0, truncated = 0;  // tokens of the longest sample, of all samples; truncated samples
};

// Tokenizes all samples and holds them in memory, 4 bytes per token. Fails on columns that are not text and, naming the
// sample, on text that cannot be tokenized. `tokenizer` is used during the call only.
absl::StatusOr<TokenizedText> TokenizeColumns(std::shared_ptr<const Dataset> source, const Tokenizer& tokenizer,
                                              const TextOptions& options);

// Returns the token that ends documents: the first of the usual names that the tokenizer has.
std::optional<TokenId> FindEndOfText(const Tokenizer& tokenizer);

// Tokens of consecutive documents, each with its special tokens and followed by the end of text.
struct DocumentTokens {
  std::vector<TokenId> ids;
  int64_t documents = 0, bytes = 0, characters = 0;  // totals of the text
  std::vector<int64_t> unreadable;                   // rows that were skipped
};

// Computes the ids of Tokenizer::Encode on several threads, in parts of about `part_bytes`.
absl::Status EncodeOnThreads(const Tokenizer& tokenizer, std::string_view text, int threads, size_t part_bytes,
                             std::vector<TokenId>* ids);

// Tokenizes documents of a text column. If there are fewer documents than threads, several threads share a long one.
class DocumentTokenizer {
 public:
  // The arguments must outlive this object. `skip_bad`: skips documents that cannot be tokenized instead of failing.
  DocumentTokenizer(const Dataset& data, int column, const Tokenizer& tokenizer, bool skip_bad, int threads);

  // Tokenizes the documents `rows`, in that order. The result does not depend on the number of threads.
  absl::StatusOr<DocumentTokens> Run(std::span<const int64_t> rows) const;
  std::optional<TokenId> end_of_text() const { return end_; }

 private:
  absl::Status Append(int64_t row, int threads, TokenizerScratch* scratch, DocumentTokens* tokens) const;

  const Dataset& data_;
  int column_;
  const Tokenizer& tokenizer_;
  std::optional<TokenId> end_;
  bool skip_bad_;
  int threads_;
};

// Makes a sequence (token_blocks.h) in memory.
std::shared_ptr<const Dataset> MakeTokenSequence(const std::string& name, const std::vector<TokenId>& ids);

}  // namespace onnxtrain
