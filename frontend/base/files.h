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

// Small text files, whole.

// A regular file of at most `limit` bytes. The error names the path.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit);
// Atomically: a temporary file beside it, fsync, rename. A folder at `path`, a full disk, … are errors that name it.
absl::Status WriteTextFile(const std::string& path, std::string_view text);

// Writes files atomically: a reader sees the old file or the complete new one.

// A file that is written under a temporary name in the same folder. Commit() syncs it, renames it and syncs the folder;
// until then, and on any failure, an existing file of that name stays as it was. Without Commit() the destructor
// removes the temporary file. Errors name the path as it was `shown` to the user.
class AtomicFile {
 public:
  // Creates the temporary file. `name`, without a slash, is relative to the open folder `folder_fd`, which the caller
  // may close afterwards. Never follows a symlink at the name.
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

// Where shared libraries of this project lie.

// The folder of the shared library, or of the program, that this function is linked into; "." where it is unknown.
std::filesystem::path LibraryFolder();

}  // namespace onnxtrain
