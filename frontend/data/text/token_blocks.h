// Cuts token sequences into blocks of equal length, the samples of language models, whose labels are the next tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Conversions from tokens to other units, for samples of language models.
struct TextUnit {
  int64_t tokens_per_sample = 0;  // 0: samples are not token blocks
  double bytes_per_token = 0;     // 0: unknown
  bool tokens_are_characters = false;
};

// The contents of a column of blocks.
enum class BlockRole : uint8_t { kIds, kMask, kPadding, kTypes, kPositions, kLabels, kOwnLabels, kAttention, kBias };

struct BlockOptions {
  int64_t length = 0;                  // tokens per block
  int64_t pad = 0;                     // token id for padding
  int64_t ignore_index = -100;         // label for padding
  int64_t max_id = 0;                  // maximum of the tokens
  std::optional<int64_t> end_of_text;  // token after each document
  // Separates documents: positions start at 0 in each, attention masks end at their borders, and the end of one does
  // not predict the next. Requires end_of_text.
  bool separate = false;
};

// Returns true for a single column of scalar integers, as in a token shard.
bool IsTokenSequence(const Dataset& data);

// Cuts each sequence (IsTokenSequence) into blocks of T tokens and pads its last block. Columns, in the order of
// BlockRole:
//   tokens.ids [T]; .mask and .padding [T], 1 and 0 at tokens; .types [T], 0; .positions [T], 0 1 2 …
//   tokens.labels [T]      the next token, ignore_index at padding
//   tokens.own_labels [T]  the tokens themselves, for models that shift labels
//   tokens.attention [1,T,T]  true where a query (axis 1) sees a key (axis 2): its own and earlier tokens
//   tokens.bias [1,T,T]    f32: 0 there, elsewhere the lowest number
// Blocks are read on demand.
class TokenBlocks : public Dataset {
 public:
  TokenBlocks(std::vector<std::shared_ptr<const Dataset>> sequences, const BlockOptions& options);

  int64_t size() const override { return ends_.back(); }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override;
  std::string Describe(int64_t i) const override;
  // Names a block by its position, which appended text does not change.
  std::string StableName(int64_t i) const override;
  int64_t memory_bytes() const override;

  // Returns the blocks [first, end) of sequence `s`.
  std::pair<int64_t, int64_t> GetBlockRange(size_t s) const { return {s == 0 ? 0 : ends_[s - 1], ends_[s]}; }

 private:
  struct Place {
    size_t sequence;
    int64_t first;  // index of the first token
  };
  Place Find(int64_t i) const;

  std::vector<std::shared_ptr<const Dataset>> sequences_;
  BlockOptions options_;
  std::vector<Column> columns_;
  std::vector<int64_t> ends_;  // number of blocks up to the end of each sequence
};

// Returns the maximum id of a sequence, reading all of it unless its bounds are known. Fails on a negative id.
absl::StatusOr<int64_t> FindMaxId(const Dataset& sequence);

}  // namespace onnxtrain
