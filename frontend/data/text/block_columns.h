// The columns of rows of tokens, which token blocks (token_blocks.h) and samples with answers (token_rows.h) share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/text/token_blocks.h"

namespace onnxtrain {

// Flags of a token in a row.
enum TokenFlag : uint8_t {
  kTrainedToken = 1,  // the loss counts it
  kLastToken = 2      // its sample ends with it
};

// The tokens of one row, and the number of positions to fill, of which those behind the tokens are padding.
struct TokenRow {
  std::span<const int64_t> tokens;  // up to length + 1: the label of the last position may be the next one
  int64_t length;
  const BlockOptions& options;
  std::span<const uint8_t> flags = {};  // TokenFlag of each token; empty: all count, and end_of_text ends documents

  bool IsToken(int64_t k) const { return k < std::ssize(tokens) && k < length; }
  bool IsTrained(int64_t k) const { return flags.empty() || (flags[k] & kTrainedToken) != 0; }
  bool EndsDocument(int64_t k) const {
    if (!options.separate) return false;
    return flags.empty() ? tokens[k] == *options.end_of_text : (flags[k] & kLastToken) != 0;
  }
};

// Returns the columns in the order of BlockRole. `variable`: rows of one axis have different lengths up to `length`.
std::vector<Column> MakeBlockColumns(const BlockOptions& options, int64_t length, bool variable);

// Returns true if the first columns of the data set are those of MakeBlockColumns.
bool HasBlockColumns(const Dataset& data);
// Reads a column [T] of a sample of such a data set.
absl::StatusOr<std::vector<int64_t>> ReadBlockColumn(const Dataset& data, int64_t sample, BlockRole role);

// Writes column `c` of a row to `out`, which has the bytes of its positions.
void FillBlockColumn(int c, const TokenRow& row, std::span<std::byte> out);

// Returns the number of positions that a buffer of column `c` has.
int64_t CountPositions(int c, size_t bytes);

}  // namespace onnxtrain
