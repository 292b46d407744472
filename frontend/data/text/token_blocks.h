// Sequences of tokens as samples of a language model: blocks of one length, whose labels are the next tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// What the tokens of a language model's samples stand for.

struct TextUnit {
  int64_t tokens_per_sample = 0;  // 0: samples are no blocks of tokens
  double bytes_per_token = 0;     // 0: unknown
  bool tokens_are_characters = false;
};

// What a column of blocks holds.
enum class BlockRole : uint8_t { kIds, kMask, kPadding, kTypes, kPositions, kLabels, kOwnLabels, kAttention, kBias };

struct BlockOptions {
  int64_t length = 0;                  // tokens of a block
  int64_t pad = 0;                     // id of padding
  int64_t ignore_index = -100;         // label of padding
  int64_t max_id = 0;                  // of the tokens
  std::optional<int64_t> end_of_text;  // the token behind each document
  // Documents do not see each other: positions begin at 0 in each, the mask of attention ends at their borders, and
  // the end of one does not predict the next. Requires end_of_text.
  bool separate = false;
};

// Is it one column of single integers, as a shard of tokens?
bool IsTokenSequence(const Dataset& data);

// Cuts sequences (IsTokenSequence) into blocks, each for itself; the last block of a sequence is padded. Columns, in
// the order of BlockRole, T being the length:
//   tokens.ids [T]; .mask and .padding [T], 1 and 0 at tokens; .types [T], 0; .positions [T], 0 1 2 …
//   tokens.labels [T]      the token behind each, ignore_index at padding
//   tokens.own_labels [T]  the tokens themselves, for models that shift labels
//   tokens.attention [1,T,T]  true where a query (axis 1) sees a key (axis 2): its own and earlier tokens
//   tokens.bias [1,T,T]    f32: 0 there, elsewhere the lowest number
// Blocks are read when they are needed.
class TokenBlocks : public Dataset {
 public:
  TokenBlocks(std::vector<std::shared_ptr<const Dataset>> sequences, const BlockOptions& options);

  int64_t size() const override { return ends_.back(); }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override;
  std::string Describe(int64_t i) const override;
  // By its place: text that is added later moves no block.
  std::string StableName(int64_t i) const override;
  int64_t memory_bytes() const override;

  // Blocks of sequence `s`: [first, end).
  std::pair<int64_t, int64_t> BlocksOf(size_t s) const { return {s == 0 ? 0 : ends_[s - 1], ends_[s]}; }

 private:
  struct Place {
    size_t sequence;
    int64_t first;  // token
  };
  Place Find(int64_t i) const;

  std::vector<std::shared_ptr<const Dataset>> sequences_;
  BlockOptions options_;
  std::vector<Column> columns_;
  std::vector<int64_t> ends_;  // by sequence: blocks up to its end
};

// The greatest id of a sequence, which is read from start to end unless its bounds are known. Fails on a negative id.
absl::StatusOr<int64_t> FindMaxId(const Dataset& sequence);

}  // namespace onnxtrain
