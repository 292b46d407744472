#include "frontend/onnx/read/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Atomic without locks, because a signal handler reads it. An entry with `begin` 0 is free.
struct MappedRange {
  std::atomic<uintptr_t> begin{0}, size{0};
};
std::array<MappedRange, 4096> mapped_ranges;

void Register(const std::byte* data, size_t size) {
  for (MappedRange& range : mapped_ranges) {
    uintptr_t free = 0;
    if (!range.begin.compare_exchange_strong(free, reinterpret_cast<uintptr_t>(data))) continue;
    range.size = size;
    return;
  }
}

void Unregister(const std::byte* data) {
  for (MappedRange& range : mapped_ranges) {
    if (range.begin != reinterpret_cast<uintptr_t>(data)) continue;
    range.size = 0;
    range.begin = 0;
    return;
  }
}

}  // namespace

bool IsInMappedFile(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return std::ranges::any_of(mapped_ranges, [&](const MappedRange& range) { return at - range.begin < range.size; });
}

void ReleaseMappedPages(std::span<const std::byte> bytes) {
  if (bytes.empty() || !IsInMappedFile(bytes.data())) return;
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()), first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin + bytes.size() - first, MADV_DONTNEED);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Map(int fd) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->fd_ = fd;
  struct stat info;
  if (::fstat(fd, &info) != 0) return Invalid("cannot be examined: ", std::strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_size == 0) return Invalid("cannot be mapped: no regular file with content");
  void* data = ::mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return Invalid("cannot be mapped: ", std::strerror(errno));
  file->data_ = static_cast<const std::byte*>(data);
  file->size_ = info.st_size;
  Register(file->data_, file->size_);
  file->changed_seconds_ = info.st_mtim.tv_sec;
  file->changed_nanoseconds_ = info.st_mtim.tv_nsec;
  return std::shared_ptr<const MappedFile>(file);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Copy(std::span<const std::byte> bytes) {
  const int fd = ::memfd_create("onnxtrain", MFD_CLOEXEC);
  if (fd < 0) return absl::ResourceExhaustedError(StrCat("no memory file: ", std::strerror(errno)));
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), 1 << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const std::string why = std::strerror(errno);
      ::close(fd);
      return absl::ResourceExhaustedError(StrCat("no memory for a copy: ", why));
    }
    bytes = bytes.subspan(written);
  }
  return Map(fd);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    Unregister(data_);
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
  if (fd_ >= 0) ::close(fd_);
}

bool MappedFile::IsUnchanged() const {
  struct stat info;
  return ::fstat(fd_, &info) == 0 && static_cast<size_t>(info.st_size) == size_ &&
         info.st_mtim.tv_sec == changed_seconds_ && info.st_mtim.tv_nsec == changed_nanoseconds_;
}

void MappedFile::ReleasePages() const { ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED); }

}  // namespace onnxtrain
