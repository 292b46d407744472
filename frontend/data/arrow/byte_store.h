// Keeps the decoded values of a column.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "frontend/base/scratch_file.h"

namespace onnxtrain {

// Limits the bytes that several stores hold in memory. Thread-safe.
class StoreBudget {
 public:
  explicit StoreBudget(int64_t bytes) : left_(bytes) {}
  // Takes `bytes` and returns true; returns false and takes none if fewer are left.
  bool Take(int64_t bytes) {
    if (left_.fetch_sub(bytes) >= bytes) return true;
    GiveBack(bytes);
    return false;
  }
  void GiveBack(int64_t bytes) { left_.fetch_add(bytes); }

 private:
  std::atomic<int64_t> left_;
};

// Bytes that one thread appends, or several write at offsets, before any threads read them at any offset. They are in
// memory while the budget lasts, else in a ScratchFile.
class ByteStore {
 public:
  explicit ByteStore(std::shared_ptr<StoreBudget> budget) : budget_(std::move(budget)) {}
  ByteStore(const ByteStore&) = delete;
  ByteStore& operator=(const ByteStore&) = delete;

  // Fails if the file would take more than half of the free space.
  absl::Status Append(std::span<const std::byte> bytes);
  // Reserves `bytes` bytes in an empty store, which WriteAt fills.
  absl::Status Allocate(int64_t bytes);
  absl::Status WriteAt(int64_t offset, std::span<const std::byte> bytes);
  // Fills `out`. Requires offset + out.size() ≤ size().
  absl::Status ReadAt(int64_t offset, std::span<std::byte> out) const;
  int64_t size() const { return size_; }
  bool in_file() const { return file_.has_value(); }

 private:
  static constexpr int64_t kBlock = 4 << 20;
  struct FreeBlock {
    void operator()(std::byte* block) const { std::free(block); }
  };

  void AddBlock(bool is_large);
  void AppendToBlocks(std::span<const std::byte> bytes);
  absl::Status MoveToFile();
  absl::Status CheckSpace(int64_t bytes) const;

  std::shared_ptr<StoreBudget> budget_;
  std::vector<std::unique_ptr<std::byte[], FreeBlock>> blocks_;
  std::optional<ScratchFile> file_;
  int64_t size_ = 0, max_file_bytes_ = 0;
};

}  // namespace onnxtrain
