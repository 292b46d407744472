#include "frontend/base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

absl::Status Failed(const std::string& path, std::string_view what) {
  return absl::UnavailableError(StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

absl::Status WriteAll(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), 1 << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(path, "cannot be written");
    bytes = bytes.subspan(n);
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : Failed(path, "cannot be synced to disk");
}

absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed(folder, "cannot be opened");
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;  // some file systems cannot sync folders
  ::close(fd);
  return synced ? absl::OkStatus() : Failed(folder, "cannot be synced to disk");
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = StrCat(path, ".tmp.", ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return Failed(path, "cannot be created");
  absl::Status status = WriteAll(fd, bytes, path);
  if (::close(fd) != 0 && status.ok()) status = Failed(path, "cannot be closed");
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) status = Failed(path, "cannot be renamed into place");
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return SyncFolderOf(path);
}

}  // namespace onnxtrain
