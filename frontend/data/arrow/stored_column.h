// Decodes columns of Parquet and Arrow files once, for random access.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/arrow/arrow_table.h"
#include "frontend/data/arrow/byte_store.h"

namespace onnxtrain {

// A column's values as numbers, lists of numbers, texts or bytes. The first access decodes them. Thread-safe.
class StoredColumn {
 public:
  enum class Missing : uint8_t {
    kProblem,     // a missing number makes the column unusable
    kNan,         // a missing number is read as NaN; integers become float64
    kUnreadable,  // missing values cannot be read, others can
  };
  // If `as_text`, values other than texts and bytes become JSON texts.
  StoredColumn(std::shared_ptr<const ArrowTable> table, int column, bool as_text, Missing missing,
               std::shared_ptr<StoreBudget> budget);

  // Decodes the column if necessary. Fails if only a part of it can be read.
  absl::Status Load() const;
  // Returns the type of a sample. The shape of lists is known after Load.
  const Type& sample() const { return sample_; }
  absl::Status Read(int64_t i, std::span<std::byte> out) const { return ReadRange(i, 1, out); }
  absl::Status ReadRange(int64_t first, int64_t count, std::span<std::byte> out) const;
  // Reads a text or bytes, at most `most` bytes. Missing values are empty.
  absl::StatusOr<std::string> ReadText(int64_t i, size_t most = SIZE_MAX) const;

 private:
  absl::Status Decode() const;
  absl::Status DecodeInParallel() const;
  absl::Status Append(int64_t first, const ArrowChunk& chunk) const;
  absl::StatusOr<std::span<const std::byte>> ConvertNumbers(const ArrowChunk& chunk,
                                                            std::vector<std::byte>* buffer) const;
  absl::Status AppendLists(int64_t first, const ArrowChunk& chunk) const;
  absl::Status AppendTexts(const ArrowChunk& chunk) const;
  absl::Status NoteMissing(int64_t first, const ArrowChunk& chunk) const;
  absl::Status FitList(int64_t row, std::span<const int64_t> extents) const;
  absl::Status CheckReadable(int64_t first, int64_t count) const;

  std::shared_ptr<const ArrowTable> table_;
  const int column_;
  const bool as_text_;
  const Missing missing_;
  mutable Type sample_;
  mutable bool has_shape_ = false;  // the first list has set the shape
  mutable std::once_flag loaded_;
  mutable absl::Status status_;
  mutable ByteStore values_, offsets_;
  mutable std::vector<bool> unreadable_;  // by row; empty: none
};

}  // namespace onnxtrain
