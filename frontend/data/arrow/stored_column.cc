#include "frontend/data/arrow/stored_column.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "frontend/base/status.h"
#include "frontend/data/transform/convert.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {
namespace {

using Kind = ArrowColumn::Kind;

constexpr int64_t kMostElements = int64_t{1} << 31;  // per sample

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Writes NaN of a floating-point type over the missing values.
void SetNan(DType dtype, std::span<const uint8_t> missing, std::span<std::byte> values) {
  HostTensor nan(Type{dtype, {}});
  nan.Set(0, std::numeric_limits<double>::quiet_NaN());
  const size_t width = nan.bytes().size();
  for (size_t i = 0; i < missing.size(); ++i) {
    if (missing[i] != 0) std::memcpy(&values[i * width], nan.bytes().data(), width);
  }
}

}  // namespace

StoredColumn::StoredColumn(std::shared_ptr<const ArrowTable> table, int column, bool as_text, Missing missing,
                           std::shared_ptr<StoreBudget> budget)
    : table_(std::move(table)),
      column_(column),
      as_text_(as_text || table_->columns()[column].kind == Kind::kTexts ||
               table_->columns()[column].kind == Kind::kBytes),
      missing_(missing),
      sample_{table_->columns()[column].dtype, {}},
      values_(budget),
      offsets_(std::move(budget)) {
  if (as_text_) sample_ = {DType::kFloat64, {}};
  if (missing_ == Missing::kNan && !IsFloat(sample_.dtype)) sample_.dtype = DType::kFloat64;
}

absl::Status StoredColumn::Load() const {
  std::call_once(loaded_, [this] { status_ = Decode(); });
  return status_;
}

// Decodes numbers without missing ones, whose positions are known.
absl::Status StoredColumn::DecodeInParallel() const {
  const auto width = static_cast<int64_t>(sample_.bytes());
  RETURN_IF_ERROR(values_.Allocate(table_->rows() * width));
  return table_->ReadColumnInParallel(column_, [&](int64_t first, const ArrowChunk& chunk) -> absl::StatusOr<bool> {
    if (!chunk.missing.empty()) return Invalid("has missing values, of which its statistics have none");
    std::vector<std::byte> buffer;
    ASSIGN_OR_RETURN(const std::span<const std::byte> numbers, ConvertNumbers(chunk, &buffer));
    RETURN_IF_ERROR(values_.WriteAt(first * width, numbers));
    return true;
  });
}

absl::Status StoredColumn::Decode() const {
  const ArrowColumn& info = table_->columns()[column_];
  if (info.kind == Kind::kNumbers && info.missing == 0 && !as_text_) return DecodeInParallel();
  if (as_text_) RETURN_IF_ERROR(offsets_.Append(BytesOf(std::vector<int64_t>{0})));
  RETURN_IF_ERROR(
      table_->ReadColumn(column_, as_text_, [this](int64_t first, const ArrowChunk& chunk) -> absl::StatusOr<bool> {
        RETURN_IF_ERROR(Append(first, chunk));
        return true;
      }));
  return absl::OkStatus();
}

absl::Status StoredColumn::Append(int64_t first, const ArrowChunk& chunk) const {
  if (as_text_) return AppendTexts(chunk);
  RETURN_IF_ERROR(NoteMissing(first, chunk));
  if (table_->columns()[column_].kind == Kind::kLists) return AppendLists(first, chunk);
  std::vector<std::byte> buffer;
  ASSIGN_OR_RETURN(const std::span<const std::byte> numbers, ConvertNumbers(chunk, &buffer));
  return values_.Append(numbers);
}

absl::Status StoredColumn::NoteMissing(int64_t first, const ArrowChunk& chunk) const {
  const auto found = std::ranges::find(chunk.missing, 1);
  const bool lists = table_->columns()[column_].kind == Kind::kLists;
  if (found == chunk.missing.end() || (missing_ == Missing::kNan && !lists)) return absl::OkStatus();
  if (missing_ != Missing::kUnreadable)
    return Invalid("row ", table_->RowInFile(first + (found - chunk.missing.begin())), ": missing value");
  unreadable_.resize(table_->rows());
  for (int64_t i = 0; i < chunk.rows; ++i) unreadable_[first + i] = chunk.missing[i] != 0;
  return absl::OkStatus();
}

// Converts the numbers to the type of samples.
absl::StatusOr<std::span<const std::byte>> StoredColumn::ConvertNumbers(const ArrowChunk& chunk,
                                                                        std::vector<std::byte>* buffer) const {
  const DType dtype = table_->columns()[column_].dtype;
  if (std::ssize(chunk.numbers) != chunk.rows * static_cast<int64_t>(Type{dtype, {}}.bytes()))
    return Invalid("has ", chunk.numbers.size(), " bytes for ", chunk.rows, " rows");
  if (missing_ != Missing::kNan) return chunk.numbers;
  buffer->resize(chunk.rows * sample_.bytes());
  RETURN_IF_ERROR(ConvertValues(dtype, chunk.numbers, sample_.dtype, buffer->data(), 1));
  SetNan(sample_.dtype, chunk.missing, *buffer);
  return std::span<const std::byte>(*buffer);
}

// Sets the shape of all lists to that of the first one. Fails on other shapes, ragged lists and nulls.
absl::Status StoredColumn::FitList(int64_t row, std::span<const int64_t> extents) const {
  if (has_shape_ && std::ranges::equal(extents, sample_.shape)) return absl::OkStatus();
  if (std::ranges::find(extents, ArrowChunk::kHoldsNull) != extents.end())
    return Invalid("row ", table_->RowInFile(row), ": a list holds null, not a number");
  if (std::ranges::find(extents, ArrowChunk::kRagged) != extents.end())
    return Invalid("row ", table_->RowInFile(row), ": lists nested in it are of different lengths");
  const Shape shape(extents.begin(), extents.end());
  if (!std::exchange(has_shape_, true)) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements = std::min(elements * extent, kMostElements);
    if (elements == kMostElements)
      return Invalid("row ", table_->RowInFile(row), ": its shape ", ToString(shape), " is refused");
    sample_.shape = shape;
  }
  if (shape == sample_.shape) return absl::OkStatus();
  return Invalid("row ", table_->RowInFile(row), ": its shape ", ToString(shape), " is not the ",
                 ToString(sample_.shape), " of the first row");
}

// Appends the lists, and zeros for unreadable ones.
absl::Status StoredColumn::AppendLists(int64_t first, const ArrowChunk& chunk) const {
  const int64_t rank = table_->columns()[column_].rank;
  for (int64_t i = 0; i < chunk.rows; ++i) {
    if (chunk.missing.empty() || chunk.missing[i] == 0)
      RETURN_IF_ERROR(FitList(first + i, chunk.extents.subspan(i * rank, rank)));
  }
  const int64_t lists = chunk.rows - std::ranges::count(chunk.missing, 1);
  if (lists > 0 && std::ssize(chunk.numbers) != lists * static_cast<int64_t>(sample_.bytes()))
    return Invalid("has ", chunk.numbers.size(), " bytes for ", lists, " lists");
  if (chunk.missing.empty()) return values_.Append(chunk.numbers);
  const std::vector<std::byte> zeros(sample_.bytes());
  size_t at = 0;
  for (int64_t i = 0; i < chunk.rows; ++i) {
    if (!has_shape_) return Invalid("row ", table_->RowInFile(first), ": missing value before any other");
    const bool missing = chunk.missing[i] != 0;
    RETURN_IF_ERROR(values_.Append(missing ? std::span(zeros) : chunk.numbers.subspan(at, zeros.size())));
    if (!missing) at += zeros.size();
  }
  return absl::OkStatus();
}

absl::Status StoredColumn::AppendTexts(const ArrowChunk& chunk) const {
  std::vector<int64_t> ends(chunk.offsets.begin() + 1, chunk.offsets.end());
  for (int64_t& end : ends) end += values_.size();
  RETURN_IF_ERROR(offsets_.Append(BytesOf(ends)));
  return values_.Append(std::as_bytes(std::span(chunk.texts)));
}

absl::Status StoredColumn::CheckReadable(int64_t first, int64_t count) const {
  if (unreadable_.empty()) return absl::OkStatus();
  const auto begin = unreadable_.begin() + first, found = std::find(begin, begin + count, true);
  if (found == begin + count) return absl::OkStatus();
  return Invalid(table_->DescribeValue(first + (found - begin), column_, "missing value"));
}

absl::Status StoredColumn::ReadRange(int64_t first, int64_t count, std::span<std::byte> out) const {
  RETURN_IF_ERROR(Load());
  RETURN_IF_ERROR(CheckReadable(first, count));
  return values_.ReadAt(first * static_cast<int64_t>(sample_.bytes()), out);
}

absl::StatusOr<std::string> StoredColumn::ReadText(int64_t i, size_t most) const {
  RETURN_IF_ERROR(Load());
  int64_t ends[2];
  RETURN_IF_ERROR(offsets_.ReadAt(i * static_cast<int64_t>(sizeof(int64_t)), std::as_writable_bytes(std::span(ends))));
  std::string text(std::min<size_t>(ends[1] - ends[0], most), '\0');
  RETURN_IF_ERROR(values_.ReadAt(ends[0], std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace onnxtrain
