// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

// A file being written under a temporary name beside its own. Commit() syncs it, renames it and syncs the folder; until
// then, and whatever fails, a file that had the name before is still there. Without Commit() nothing is left. Errors name
// the path as it was `shown` to the user.
class AtomicFile {
 public:
  // `name` stands in the folder behind the descriptor, which need not stay open; it may hold no slash then. Links are
  // never followed. `path`: as any program would take it.
  static absl::StatusOr<AtomicFile> Create(int folder_fd, const std::string& name, const std::string& shown);
  static absl::StatusOr<AtomicFile> Create(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  int fd() const { return fd_; }
  absl::Status WriteAt(int64_t offset, std::span<const std::byte> bytes);
  absl::Status Commit();

 private:
  AtomicFile(int folder, std::string name, std::string shown) : folder_(folder), name_(std::move(name)), shown_(std::move(shown)) {}
  std::string temporary() const;
  absl::Status Failed(std::string_view what) const;

  int folder_;
  std::string name_, shown_;
  int fd_ = -1;
};

// The whole of it.
absl::Status WriteFileAtomically(const std::string& path, std::span<const std::byte> bytes);

}  // namespace onnxtrain
