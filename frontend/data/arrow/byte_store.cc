#include "frontend/data/arrow/byte_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"

namespace onnxtrain {
namespace {

constexpr int64_t kHugePage = 2 << 20;

}  // namespace

absl::Status ByteStore::Append(std::span<const std::byte> bytes) {
  if (!in_file() && budget_->Take(std::ssize(bytes))) return AppendToBlocks(bytes), absl::OkStatus();
  if (!in_file()) RETURN_IF_ERROR(MoveToFile());
  RETURN_IF_ERROR(CheckSpace(size_ + std::ssize(bytes)));
  RETURN_IF_ERROR(file_->WriteAt(size_, bytes));
  size_ += std::ssize(bytes);
  return absl::OkStatus();
}

absl::Status ByteStore::Allocate(int64_t bytes) {
  if (budget_->Take(bytes)) {
    while (std::ssize(blocks_) * kBlock < bytes) AddBlock(bytes >= kHugePage);
  } else {
    RETURN_IF_ERROR(MoveToFile());
    RETURN_IF_ERROR(CheckSpace(bytes));
  }
  size_ = bytes;
  return absl::OkStatus();
}

absl::Status ByteStore::WriteAt(int64_t offset, std::span<const std::byte> bytes) {
  if (in_file()) return file_->WriteAt(offset, bytes);
  while (!bytes.empty()) {
    const int64_t at = offset % kBlock, count = std::min<int64_t>(kBlock - at, std::ssize(bytes));
    std::memcpy(blocks_[offset / kBlock].get() + at, bytes.data(), count);
    bytes = bytes.subspan(count);
    offset += count;
  }
  return absl::OkStatus();
}

// Adds a block, in huge pages for large columns. A block only takes as much memory as is written.
void ByteStore::AddBlock(bool is_large) {
  auto* block = static_cast<std::byte*>(std::aligned_alloc(kHugePage, kBlock));
  CHECK(block != nullptr);
  if (is_large) madvise(block, kBlock, MADV_HUGEPAGE);
  blocks_.emplace_back(block);
}

void ByteStore::AppendToBlocks(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const int64_t at = size_ % kBlock;
    if (at == 0) AddBlock(!blocks_.empty());
    const int64_t count = std::min<int64_t>(kBlock - at, std::ssize(bytes));
    std::memcpy(blocks_.back().get() + at, bytes.data(), count);
    bytes = bytes.subspan(count);
    size_ += count;
  }
}

absl::Status ByteStore::MoveToFile() {
  absl::StatusOr<ScratchFile> file = ScratchFile::Create(ScratchFolder());
  if (!file.ok())
    return Invalid("decoded values do not fit into memory: ", file.status().message(),
                   " (TMPDIR names another folder)");
  file_.emplace(*std::move(file));
  max_file_bytes_ = file_->FreeBytes() / 2;
  for (int64_t at = 0; at < size_; at += kBlock)
    RETURN_IF_ERROR(
        file_->WriteAt(at, {blocks_[at / kBlock].get(), static_cast<size_t>(std::min(kBlock, size_ - at))}));
  blocks_.clear();
  budget_->GiveBack(size_);
  return absl::OkStatus();
}

absl::Status ByteStore::CheckSpace(int64_t bytes) const {
  if (bytes <= max_file_bytes_) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("decoded values need more than ", FormatBytes(static_cast<double>(max_file_bytes_)),
             ", half of the free space in ", ScratchFolder(), " (TMPDIR names another folder)"));
}

absl::Status ByteStore::ReadAt(int64_t offset, std::span<std::byte> out) const {
  if (in_file()) return file_->ReadAt(offset, out);
  while (!out.empty()) {
    const int64_t at = offset % kBlock, count = std::min<int64_t>(kBlock - at, std::ssize(out));
    std::memcpy(out.data(), blocks_[offset / kBlock].get() + at, count);
    out = out.subspan(count);
    offset += count;
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
