// Columns of Parquet and Arrow files, decoded once and then read at random.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/arrow/arrow_table.h"
#include "frontend/data/arrow/byte_store.h"

namespace onnxtrain {

// A column's values as numbers, lists of numbers, texts or bytes. Decoded when the first one is read. Thread-safe.
class StoredColumn {
 public:
  enum class Missing : uint8_t {
    kProblem,     // a missing number makes the column unusable
    kNan,         // it is read as NaN; integers become float64
    kUnreadable,  // it cannot be read, others can
  };
  // `as_text`: values other than texts and bytes become JSON texts.
  StoredColumn(std::shared_ptr<const ArrowTable> table, int column, bool as_text, Missing missing,
               std::shared_ptr<StoreBudget> budget);

  // Decodes the column, if that has not been done. Fails on what can be read in part only.
  absl::Status Load() const;
  // Returns the type of a sample. The shape of lists is known after Load.
  const Type& sample() const { return sample_; }
  absl::Status Read(int64_t i, std::span<std::byte> out) const { return ReadRange(i, 1, out); }
  absl::Status ReadRange(int64_t first, int64_t count, std::span<std::byte> out) const;
  // Reads a text or bytes; those that are missing are empty. Reads at most `most` bytes.
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
  mutable bool has_shape_ = false;  // of lists, which the first one has
  mutable std::once_flag loaded_;
  mutable absl::Status status_;
  mutable ByteStore values_, offsets_;
  mutable std::vector<bool> unreadable_;  // rows; empty: none
};

}  // namespace onnxtrain
