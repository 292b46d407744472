#include "frontend/data/text/token_blocks.h"

#include <algorithm>
#include <limits>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

// The tokens of a block and the next one, if any.
struct Block {
  std::span<const int64_t> tokens;  // up to length + 1
  const BlockOptions& options;

  int64_t length() const { return options.length; }
  bool IsToken(int64_t k) const { return k < std::ssize(tokens) && k < length(); }
  bool EndsDocument(int64_t k) const { return options.separate && tokens[k] == *options.end_of_text; }
};

template <typename T>
std::span<T> As(std::span<std::byte> out) {
  return {reinterpret_cast<T*>(out.data()), out.size() / sizeof(T)};
}

void FillIds(const Block& b, std::span<std::byte> out) {
  const std::span<int64_t> ids = As<int64_t>(out);
  for (int64_t k = 0; k < b.length(); ++k) ids[k] = b.IsToken(k) ? b.tokens[k] : b.options.pad;
}
void FillMask(const Block& b, std::span<std::byte> out) {
  const std::span<int64_t> mask = As<int64_t>(out);
  for (int64_t k = 0; k < b.length(); ++k) mask[k] = b.IsToken(k) ? 1 : 0;
}
void FillPadding(const Block& b, std::span<std::byte> out) {
  const std::span<int64_t> padding = As<int64_t>(out);
  for (int64_t k = 0; k < b.length(); ++k) padding[k] = b.IsToken(k) ? 0 : 1;
}
void FillZeros(const Block&, std::span<std::byte> out) { std::ranges::fill(out, std::byte{0}); }

void FillPositions(const Block& b, std::span<std::byte> out) {
  const std::span<int64_t> positions = As<int64_t>(out);
  for (int64_t k = 0, at = 0; k < b.length(); ++k) {
    positions[k] = at;
    at = b.IsToken(k) && b.EndsDocument(k) ? 0 : at + 1;
  }
}

void FillLabels(const Block& b, std::span<std::byte> out) {
  const std::span<int64_t> labels = As<int64_t>(out);
  for (int64_t k = 0; k < b.length(); ++k) {
    const bool has_next = k + 1 < std::ssize(b.tokens) && !b.EndsDocument(k);
    labels[k] = has_next ? b.tokens[k + 1] : b.options.ignore_index;
  }
}
void FillOwnLabels(const Block& b, std::span<std::byte> out) {
  const std::span<int64_t> labels = As<int64_t>(out);
  for (int64_t k = 0; k < b.length(); ++k) labels[k] = b.IsToken(k) ? b.tokens[k] : b.options.ignore_index;
}

// Calls see(query, first) for each query, which sees keys first … query: from the start of its document to itself.
template <typename See>
void ForEachQuery(const Block& b, See see) {
  for (int64_t query = 0, first = 0; query < b.length(); ++query) {
    see(query, first);
    if (b.IsToken(query) && b.EndsDocument(query)) first = query + 1;
  }
}
void FillAttention(const Block& b, std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  ForEachQuery(b, [&](int64_t query, int64_t first) {
    std::ranges::fill(out.subspan(query * b.length() + first, query - first + 1), std::byte{1});
  });
}
void FillBias(const Block& b, std::span<std::byte> out) {
  const std::span<float> bias = As<float>(out);
  std::ranges::fill(bias, std::numeric_limits<float>::lowest());
  ForEachQuery(b, [&](int64_t query, int64_t first) {
    std::ranges::fill(bias.subspan(query * b.length() + first, query - first + 1), 0.0f);
  });
}

struct BlockColumn {
  const char* name;
  DType dtype;
  bool square;  // [1,T,T]
  void (*fill)(const Block& block, std::span<std::byte> out);
};
// The columns in the order of BlockRole.
constexpr BlockColumn kColumns[] = {
    {"tokens.ids", DType::kInt64, false, FillIds},
    {"tokens.mask", DType::kInt64, false, FillMask},
    {"tokens.padding", DType::kInt64, false, FillPadding},
    {"tokens.types", DType::kInt64, false, FillZeros},
    {"tokens.positions", DType::kInt64, false, FillPositions},
    {"tokens.labels", DType::kInt64, false, FillLabels},
    {"tokens.own_labels", DType::kInt64, false, FillOwnLabels},
    {"tokens.attention", DType::kBool, true, FillAttention},
    {"tokens.bias", DType::kFloat32, true, FillBias},
};

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
    : sequences_(std::move(sequences)), options_(options) {
  CHECK(options.length > 0 && (!options.separate || options.end_of_text.has_value()));
  for (const auto& sequence : sequences_)
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + CountBlocks(sequence->size(), options.length));
  const int64_t length = options.length;
  for (const BlockColumn& c : kColumns) {
    columns_.push_back(
        {.name = c.name, .sample = {c.dtype, c.square ? Shape{1, length, length} : Shape{length}}, .measured = false});
  }
  columns_[static_cast<size_t>(BlockRole::kLabels)].bounds = {0, options.max_id};
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
  CHECK_EQ(out.size(), columns_[c].sample.bytes());
  kColumns[c].fill({tokens, options_}, out);
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
