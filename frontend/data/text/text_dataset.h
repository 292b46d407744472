// Columns of text as columns of tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/tokenizer.h"

namespace onnxtrain {

// What a column of tokens holds, for each position of a sample; i64.
enum class TokenRole : uint8_t { kIds, kMask, kPadding, kTypes, kPositions };

struct TokenRoleName {
  TokenRole role;
  const char* name;  // of the column: TEXT.NAME
  const char* what;  // for people
};
inline constexpr TokenRoleName kTokenRoles[] = {{TokenRole::kIds, "ids", "token ids"},
                                                {TokenRole::kMask, "mask", "1, at padding 0"},
                                                {TokenRole::kPadding, "padding", "0, at padding 1"},
                                                {TokenRole::kTypes, "types", "0, in the second text 1"},
                                                {TokenRole::kPositions, "positions", "0, 1, 2, …"}};

struct TextOptions {
  std::vector<std::string> columns;  // one, or two of a pair: names of text columns
  int64_t max_length = 0;            // tokens of a sample with special ones; 0: no limit
  bool skip_bad = false;             // texts that cannot be tokenized make their samples unreadable, not the data
  int threads = 1;
  int64_t fixed_length = 0;  // above 0: what all samples are padded to
};

// Why a column cannot be tokenized that is no text.
absl::Status NoText(const Column& column);
// The error that a data set has no such column.
absl::Status NoTextColumn(const std::string& name, const std::vector<Column>& columns);

// A view of the data with a column "TEXT.NAME" for each of kTokenRoles behind its own, where TEXT is the first column
// of text. They are variable (Column::variable): a sample is as long as its tokens, at least one of padding.
struct TokenizedText {
  std::shared_ptr<const Dataset> dataset;
  int first_column = 0;                            // of the columns of tokens, in the order of kTokenRoles
  int64_t longest = 0, tokens = 0, truncated = 0;  // tokens of the longest sample and of all; samples that were cut
};

// Tokenizes all samples, which then are in memory: 4 bytes a token. Fails on columns that are not text, and names the
// sample whose text cannot be tokenized. The tokenizer is needed during the call only.
absl::StatusOr<TokenizedText> TokenizeColumns(std::shared_ptr<const Dataset> source, const Tokenizer& tokenizer,
                                              const TextOptions& options);

}  // namespace onnxtrain
