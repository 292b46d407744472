// An unnamed file for data that memory has no room for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

// Returns the folder for data that memory has no room for: that of the environment variable TMPDIR, or /var/tmp, which
// is on a disk where /tmp may be in memory.
std::string ScratchFolder();

// A file without a name, which the system removes when it is closed. Thread-safe; errors name the folder.
class ScratchFile {
 public:
  static absl::StatusOr<ScratchFile> Create(const std::string& folder);
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;
  ~ScratchFile();

  int fd() const { return fd_; }
  // Returns the bytes that the folder's file system can still store.
  int64_t FreeBytes() const;
  // Extends the file to `bytes` bytes of zeros, for which disk space is reserved where the file system can.
  absl::Status Reserve(int64_t bytes) const;
  absl::Status WriteAt(int64_t offset, std::span<const std::byte> bytes) const;
  // Fills `bytes`, which must have been written or reserved.
  absl::Status ReadAt(int64_t offset, std::span<std::byte> bytes) const;

 private:
  ScratchFile(std::string folder, int fd) : folder_(std::move(folder)), fd_(fd) {}
  absl::Status Failed(std::string_view what) const;

  std::string folder_;
  int fd_;
};

}  // namespace onnxtrain
