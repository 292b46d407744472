// Reads small text files, writes files atomically, and finds the folder of this project's shared libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

// Returns the content of a regular file of at most `limit` bytes. Errors name the path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit);
// Writes the file atomically: temporary file in the same folder, fsync, rename. Errors name the path.
absl::Status WriteTextFile(const std::string& path, std::string_view text);

// Writes a file atomically: readers see the old file or the complete new one. The bytes go to a temporary file in the
// same folder, which Commit() syncs and renames before it syncs the folder. Until then, and on any failure, an existing
// file of that name is unchanged. Without Commit(), the destructor removes the temporary file. Errors name the path as
// `shown`.
class AtomicFile {
 public:
  // Creates the temporary file. `name` contains no slash and is relative to the open folder `folder_fd`, which the
  // caller may close afterwards. Never follows a symlink at that name.
  static absl::StatusOr<AtomicFile> Create(int folder_fd, const std::string& name, const std::string& shown);
  static absl::StatusOr<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  int fd() const { return fd_; }
  absl::Status WriteAt(int64_t offset, std::span<const std::byte> bytes);
  absl::Status Commit();

 private:
  AtomicFile(int folder, std::string name, std::string shown)
      : folder_(folder), name_(std::move(name)), shown_(std::move(shown)) {}
  std::string temporary() const;
  absl::Status Failed(std::string_view what) const;

  int folder_;
  std::string name_, shown_;
  int fd_ = -1;
};

// Returns the folder of the shared library or program that this function is linked into, "." if it is unknown. The
// shared libraries of this project are installed there.
std::filesystem::path LibraryFolder();

}  // namespace onnxtrain
