// Memory-mapped files: weights are read from the page cache, which the kernel drops and refills.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

// Memory that views of mapped files take.

// Releases the resident pages that hold these bytes, if they are in a MappedFile (as IsInMappedFile knows); the next
// access reads them again. Any thread.
void ReleaseMappedPages(std::span<const std::byte> bytes);

// Keeps few pages resident while bytes are read from the first to the last one, some of them skipped: Linux makes up to
// 2 MiB around a byte that is read resident.
class ReadOnce {
 public:
  explicit ReadOnce(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Nothing before `at` is read again.
  void PassedTo(size_t at) {
    if (at - released_ < kStep) return;
    ReleaseMappedPages(bytes_.subspan(released_, at - released_));
    released_ = at;
  }

 private:
  static constexpr size_t kStep = size_t{1} << 20;

  std::span<const std::byte> bytes_;
  size_t released_ = 0;
};

// A read-only mapping of a whole regular file. The file must not be changed in place: readers call IsUnchanged() first,
// and reading past the end of a file that is truncated meanwhile raises SIGBUS (IsInMappedFile). Replacing the file
// under its name is harmless.
class MappedFile {
 public:
  // Takes ownership of the descriptor, also on failure.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Map(int fd);
  // Maps a file without a name that holds a copy of the bytes, of which there must be some.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Copy(std::span<const std::byte> bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Whether the file still has the size and modification time that it was mapped with.
  bool IsUnchanged() const;
  // Releases the resident pages; the next access reads them again.
  void ReleasePages() const;

 private:
  MappedFile() = default;

  int fd_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t changed_seconds_ = 0, changed_nanoseconds_ = 0;
};

// Returns whether the address lies in a MappedFile of this process (of its first 4096). Async-signal-safe: for a
// program's handler of SIGBUS, to tell a truncated file from other faults.
bool IsInMappedFile(const void* address);

}  // namespace onnxtrain
