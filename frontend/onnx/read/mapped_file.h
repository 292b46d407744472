// Maps files into memory, so that weights are read from the page cache, which the kernel drops and refills.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

// Releases the resident pages that hold these bytes if IsInMappedFile finds them; the next access reads them again.
// Thread-safe.
void ReleaseMappedPages(std::span<const std::byte> bytes);

// Limits the resident pages during a forward read that may skip bytes: Linux makes up to 2 MiB around each byte that is
// read resident.
class ReadOnce {
 public:
  explicit ReadOnce(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Releases the pages before `at`, which the caller does not read again.
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
  // Maps an unnamed file that holds a copy of the bytes, which must not be empty.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Copy(std::span<const std::byte> bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Returns true if the file still has the size and modification time that it was mapped with.
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

// Returns true if the address is in a MappedFile of this process (one of its first 4096). Async-signal-safe, so that a
// SIGBUS handler can distinguish a truncated file from other faults.
bool IsInMappedFile(const void* address);

}  // namespace onnxtrain
