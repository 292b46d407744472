#include "frontend/data/text/block_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/base/log.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

template <typename T>
std::span<T> As(std::span<std::byte> out) {
  return {reinterpret_cast<T*>(out.data()), out.size() / sizeof(T)};
}

void FillIds(const TokenRow& r, std::span<std::byte> out) {
  const std::span<int64_t> ids = As<int64_t>(out);
  for (int64_t k = 0; k < r.length; ++k) ids[k] = r.IsToken(k) ? r.tokens[k] : r.options.pad;
}
void FillMask(const TokenRow& r, std::span<std::byte> out) {
  const std::span<int64_t> mask = As<int64_t>(out);
  for (int64_t k = 0; k < r.length; ++k) mask[k] = r.IsToken(k) ? 1 : 0;
}
void FillPadding(const TokenRow& r, std::span<std::byte> out) {
  const std::span<int64_t> padding = As<int64_t>(out);
  for (int64_t k = 0; k < r.length; ++k) padding[k] = r.IsToken(k) ? 0 : 1;
}
void FillZeros(const TokenRow&, std::span<std::byte> out) { std::ranges::fill(out, std::byte{0}); }

void FillPositions(const TokenRow& r, std::span<std::byte> out) {
  const std::span<int64_t> positions = As<int64_t>(out);
  for (int64_t k = 0, at = 0; k < r.length; ++k) {
    positions[k] = at;
    at = r.IsToken(k) && r.EndsDocument(k) ? 0 : at + 1;
  }
}

void FillLabels(const TokenRow& r, std::span<std::byte> out) {
  const std::span<int64_t> labels = As<int64_t>(out);
  for (int64_t k = 0; k < r.length; ++k) {
    const bool has_next = k + 1 < std::ssize(r.tokens) && !r.EndsDocument(k) && r.IsTrained(k + 1);
    labels[k] = has_next ? r.tokens[k + 1] : r.options.ignore_index;
  }
}
void FillOwnLabels(const TokenRow& r, std::span<std::byte> out) {
  const std::span<int64_t> labels = As<int64_t>(out);
  for (int64_t k = 0; k < r.length; ++k)
    labels[k] = r.IsToken(k) && r.IsTrained(k) ? r.tokens[k] : r.options.ignore_index;
}

// Calls see(query, first) for each query, which sees keys first … query: from the start of its document to itself.
template <typename See>
void ForEachQuery(const TokenRow& r, See see) {
  for (int64_t query = 0, first = 0; query < r.length; ++query) {
    see(query, first);
    if (r.IsToken(query) && r.EndsDocument(query)) first = query + 1;
  }
}
void FillAttention(const TokenRow& r, std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  ForEachQuery(r, [&](int64_t query, int64_t first) {
    std::ranges::fill(out.subspan(query * r.length + first, query - first + 1), std::byte{1});
  });
}
void FillBias(const TokenRow& r, std::span<std::byte> out) {
  const std::span<float> bias = As<float>(out);
  std::ranges::fill(bias, std::numeric_limits<float>::lowest());
  ForEachQuery(r, [&](int64_t query, int64_t first) {
    std::ranges::fill(bias.subspan(query * r.length + first, query - first + 1), 0.0f);
  });
}

struct BlockColumn {
  const char* name;
  DType dtype;
  bool square;  // [1,T,T]
  void (*fill)(const TokenRow& row, std::span<std::byte> out);
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

}  // namespace

std::vector<Column> MakeBlockColumns(const BlockOptions& options, int64_t length, bool variable) {
  std::vector<Column> columns;
  for (const BlockColumn& c : kColumns) {
    columns.push_back({.name = c.name,
                       .sample = {c.dtype, c.square ? Shape{1, length, length} : Shape{length}},
                       .measured = false,
                       .variable = variable && !c.square});
  }
  columns[static_cast<size_t>(BlockRole::kLabels)].bounds = {0, options.max_id};
  return columns;
}

bool HasBlockColumns(const Dataset& data) {
  const auto same = [](const BlockColumn& block, const Column& column) { return column.name == block.name; };
  const std::vector<Column>& columns = data.columns();
  return columns.size() >= std::size(kColumns) &&
         std::equal(std::begin(kColumns), std::end(kColumns), columns.begin(), same);
}

absl::StatusOr<std::vector<int64_t>> ReadBlockColumn(const Dataset& data, int64_t sample, BlockRole role) {
  const auto column = static_cast<int>(role);
  HostTensor values(SampleType(data, sample, column));
  RETURN_IF_ERROR(data.Read(sample, column, values.mutable_bytes()));
  return values.ToInts();
}

int64_t CountPositions(int c, size_t bytes) {
  const auto values = static_cast<int64_t>(bytes / Type{kColumns[c].dtype, {}}.bytes());
  return kColumns[c].square ? std::llround(std::sqrt(static_cast<double>(values))) : values;
}

void FillBlockColumn(int c, const TokenRow& row, std::span<std::byte> out) {
  CHECK_EQ(CountPositions(c, out.size()), row.length);
  kColumns[c].fill(row, out);
}

}  // namespace onnxtrain
