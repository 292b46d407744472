// Documents of text as one sequence of tokens.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// The token that ends documents: of the usual names, the first one that the tokenizer has.
std::optional<TokenId> FindEndOfText(const Tokenizer& tokenizer);

// Tokens of consecutive documents, each with its special tokens and the end of text behind it.
struct DocumentTokens {
  std::vector<TokenId> ids;
  int64_t documents = 0, bytes = 0, characters = 0;  // of the text
  std::vector<int64_t> unreadable;                   // rows that were left out
};

// The ids of Tokenizer::Encode, in parts of about `part_bytes` that threads take one after the other.
absl::Status EncodeOnThreads(const Tokenizer& tokenizer, std::string_view text, int threads, size_t part_bytes,
                             std::vector<TokenId>* ids);

// Tokenizes documents from a text column. Where there are fewer than threads, these share a long one.
class DocumentTokenizer {
 public:
  // All must outlive it. `skip_bad`: documents that cannot be tokenized are left out, else an error that names them.
  DocumentTokenizer(const Dataset& data, int column, const Tokenizer& tokenizer, bool skip_bad, int threads);

  // The documents `rows`, in that order, whatever the number of threads.
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

// A sequence (token_blocks.h) in memory.
std::shared_ptr<const Dataset> MakeTokenSequence(const std::string& name, const std::vector<TokenId>& ids);

}  // namespace onnxtrain
