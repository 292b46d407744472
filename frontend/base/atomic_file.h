// Writes files atomically: a reader sees the old file or the complete new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

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

}  // namespace onnxtrain
