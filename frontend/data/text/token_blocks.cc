#include "frontend/data/text/token_blocks.h"

#include <algorithm>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/text/block_columns.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

// Returns the number of blocks that predict at least one token.
int64_t CountBlocks(int64_t tokens, int64_t length) { return (std::max<int64_t>(tokens - 1, 0) + length - 1) / length; }

absl::Status ReadTokens(const Dataset& sequence, int64_t first, std::span<int64_t> tokens) {
  const Type& type = sequence.columns()[0].sample;
  std::vector<std::byte> raw(tokens.size() * type.bytes());
  RETURN_IF_ERROR(sequence.ReadRange(first, std::ssize(tokens), 0, raw));
  return ConvertValues(type.dtype, raw, DType::kInt64, reinterpret_cast<std::byte*>(tokens.data()), 1);
}

}  // namespace

bool IsTokenSequence(const Dataset& data) {
  const std::vector<Column>& columns = data.columns();
  return columns.size() == 1 && columns[0].sample.shape.empty() && IsInteger(columns[0].sample.dtype) &&
         columns[0].sample.dtype != DType::kBool && !columns[0].text && columns[0].problem.empty() &&
         columns[0].classes.empty();
}

TokenBlocks::TokenBlocks(std::vector<std::shared_ptr<const Dataset>> sequences, const BlockOptions& options)
    : sequences_(std::move(sequences)), options_(options), columns_(MakeBlockColumns(options, options.length, false)) {
  CHECK(options.length > 0 && (!options.separate || options.end_of_text.has_value()));
  for (const auto& sequence : sequences_)
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + CountBlocks(sequence->size(), options.length));
}

TokenBlocks::Place TokenBlocks::Find(int64_t i) const {
  CHECK(i >= 0 && i < size());
  const size_t s = std::ranges::upper_bound(ends_, i) - ends_.begin();
  return {s, (i - GetBlockRange(s).first) * options_.length};
}

absl::Status TokenBlocks::Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const {
  const Place place = Find(i);
  const Dataset& sequence = *sequences_[place.sequence];
  std::vector<int64_t> tokens(std::min(options_.length + 1, sequence.size() - place.first));
  RETURN_IF_ERROR(ReadTokens(sequence, place.first, tokens));
  FillBlockColumn(c, {tokens, options_.length, options_}, out);
  return absl::OkStatus();
}

std::string TokenBlocks::Describe(int64_t i) const {
  const Place place = Find(i);
  const Dataset& sequence = *sequences_[place.sequence];
  return StrCat(sequence.Describe(place.first), ": block ", i);
}

std::string TokenBlocks::StableName(int64_t i) const { return StrCat("block ", i); }

int64_t TokenBlocks::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& sequence : sequences_) bytes += sequence->memory_bytes();
  return bytes;
}

absl::StatusOr<int64_t> FindMaxId(const Dataset& sequence) {
  if (const auto& bounds = sequence.columns()[0].bounds) return bounds->second;
  constexpr int64_t kPart = 1 << 18;
  int64_t max = 0;
  std::vector<int64_t> tokens;
  for (int64_t first = 0; first < sequence.size(); first += kPart) {
    tokens.resize(std::min(kPart, sequence.size() - first));
    RETURN_IF_ERROR(ReadTokens(sequence, first, tokens));
    const auto negative = std::ranges::find_if(tokens, [](int64_t id) { return id < 0; });
    if (negative != tokens.end())
      return Invalid(sequence.Describe(first + (negative - tokens.begin())), ": ", *negative, " is no token id");
    max = std::max(max, *std::ranges::max_element(tokens));
  }
  return max;
}

}  // namespace onnxtrain
