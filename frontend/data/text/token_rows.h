// Rows of tokens of which some carry loss: chats and answers to prompts, one sample a row or several packed into one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/pipeline.h"
#include "frontend/data/text/token_blocks.h"

namespace onnxtrain {

// A sample of a language model.
struct AnsweredSample {
  std::vector<TokenId> ids;
  std::vector<uint8_t> trained;  // 1 where the token carries loss, 0 elsewhere; as many as ids

  int64_t CountTrained() const;
};

// The tokens of samples, one after the other.
struct AnsweredSamples {
  std::vector<TokenId> ids;
  std::vector<uint8_t> flags;        // TokenFlag (block_columns.h) of each token
  std::vector<int64_t> ends;         // the end of each sample in `ids`
  std::vector<int64_t> source_rows;  // the row of each sample in the data it was made of

  int64_t size() const { return std::ssize(ends); }
  int64_t Length(int64_t i) const { return ends[i] - (i == 0 ? 0 : ends[i - 1]); }
  // Appends a sample. Its first token carries no loss, since nothing predicts it.
  void Add(const AnsweredSample& sample, int64_t source_row);
  void Append(const AnsweredSamples& other);
};

// Puts samples into rows of at most `length` tokens: the longest first, each into the row with the least room that it
// fits in (best-fit decreasing). Returns the samples of each row; a sample is at most `length` long. The result depends
// on the lengths and their order alone.
std::vector<std::vector<int64_t>> PackSamples(const std::vector<int64_t>& lengths, int64_t length);

// A data set with the columns of TokenBlocks, by BlockRole. Without packing its rows have the lengths of their samples
// (Column::variable), or all of `options.length` if `fixed`.
class TokenRows : public Dataset {
 public:
  // `rows`: the samples of each row. `source` names the samples in messages.
  TokenRows(std::shared_ptr<const Dataset> source, AnsweredSamples samples, std::vector<std::vector<int64_t>> rows,
            const BlockOptions& options, bool fixed);

  int64_t size() const override { return std::ssize(rows_); }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override;
  int64_t Length(int64_t i) const override;
  std::string Describe(int64_t i) const override;
  int64_t memory_bytes() const override;

 private:
  int64_t CountTokens(int64_t i) const;

  std::shared_ptr<const Dataset> source_;
  AnsweredSamples samples_;
  std::vector<std::vector<int64_t>> rows_;
  BlockOptions options_;
  bool fixed_;
  std::vector<Column> columns_;
};

}  // namespace onnxtrain
