#include "frontend/data/arrow/byte_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"

namespace onnxtrain {
namespace {

constexpr int64_t kHugePage = 2 << 20;

std::string ScratchFolder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/var/tmp";
}

}  // namespace

ByteStore::~ByteStore() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ByteStore::Append(std::span<const std::byte> bytes) {
  if (!in_file() && budget_->Take(std::ssize(bytes))) return AppendToBlocks(bytes), absl::OkStatus();
  if (!in_file()) RETURN_IF_ERROR(MoveToFile());
  RETURN_IF_ERROR(CheckSpace(size_ + std::ssize(bytes)));
  RETURN_IF_ERROR(WriteFile(size_, bytes));
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
  if (in_file()) return WriteFile(offset, bytes);
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
  const std::string folder = ScratchFolder();
  struct statvfs info = {};
  fd_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd_ < 0 || fstatvfs(fd_, &info) != 0)
    return Invalid("decoded values do not fit into memory, and no file can be made in ", folder, ": ",
                   std::strerror(errno), " (TMPDIR names another folder)");
  max_file_bytes_ = static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize) / 2;
  for (int64_t at = 0; at < size_; at += kBlock)
    RETURN_IF_ERROR(WriteFile(at, {blocks_[at / kBlock].get(), static_cast<size_t>(std::min(kBlock, size_ - at))}));
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

absl::Status ByteStore::WriteFile(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t done = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return Invalid("cannot write to ", ScratchFolder(), ": ", std::strerror(errno));
    offset += done;
    bytes = bytes.subspan(done);
  }
  return absl::OkStatus();
}

absl::Status ByteStore::ReadAt(int64_t offset, std::span<std::byte> out) const {
  if (in_file()) return ReadFile(offset, out);
  while (!out.empty()) {
    const int64_t at = offset % kBlock, count = std::min<int64_t>(kBlock - at, std::ssize(out));
    std::memcpy(out.data(), blocks_[offset / kBlock].get() + at, count);
    out = out.subspan(count);
    offset += count;
  }
  return absl::OkStatus();
}

absl::Status ByteStore::ReadFile(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t done = pread(fd_, out.data(), out.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return Invalid("cannot read from ", ScratchFolder(), ": ", std::strerror(errno));
    offset += done;
    out = out.subspan(done);
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
