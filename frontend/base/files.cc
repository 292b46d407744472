#include "frontend/base/files.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

absl::Status Errno(const std::string& path) { return Invalid(path, ": ", std::strerror(errno)); }

// Reads at most `limit` bytes, since the file may grow while it is read.
absl::StatusOr<std::string> ReadAll(int fd, const std::string& path, int64_t limit) {
  std::string text;
  char block[1 << 16];
  while (true) {
    const ssize_t n = read(fd, block, sizeof(block));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno(path);
    if (n == 0) return text;
    text.append(block, n);
    if (static_cast<int64_t>(text.size()) > limit) return Invalid(path, ": larger than ", limit, " bytes");
  }
}

absl::Status WriteAll(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Errno(path);
    text.remove_prefix(n);
  }
  return fsync(fd) == 0 ? absl::OkStatus() : Errno(path);
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, int64_t limit) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return Errno(path);
  if (!S_ISREG(info.st_mode)) return Invalid(path, ": not a regular file");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Errno(path);
  auto text = ReadAll(fd, path, limit);
  close(fd);
  return text;
}

absl::Status WriteTextFile(const std::string& path, std::string_view text) {
  const std::string temporary = StrCat(path, ".tmp-", getpid());
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return Errno(path);
  absl::Status status = WriteAll(fd, path, text);
  if (close(fd) != 0 && status.ok()) status = Errno(path);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = Errno(path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

std::string AtomicFile::temporary() const { return StrCat(name_, ".tmp.", ::getpid()); }

absl::Status AtomicFile::Failed(std::string_view what) const {
  return absl::UnavailableError(StrCat(shown_, ": ", what, ": ", std::strerror(errno)));
}

absl::StatusOr<AtomicFile> AtomicFile::Create(int folder_fd, const std::string& name, const std::string& shown) {
  AtomicFile file(::fcntl(folder_fd, F_DUPFD_CLOEXEC, 0), name, shown);
  if (file.folder_ < 0) return file.Failed("cannot be created");
  file.fd_ =
      ::openat(file.folder_, file.temporary().c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file.fd_ < 0) return file.Failed("cannot be created");
  return file;
}

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return absl::UnavailableError(StrCat(path, ": cannot be created: ", std::strerror(errno)));
  auto file = Create(fd, slash == std::string::npos ? path : path.substr(slash + 1), path);
  ::close(fd);
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : folder_(std::exchange(other.folder_, -1)),
      name_(std::move(other.name_)),
      shown_(std::move(other.shown_)),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlinkat(folder_, temporary().c_str(), 0);
  }
  if (folder_ >= 0) ::close(folder_);
}

absl::Status AtomicFile::WriteAt(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), std::min<size_t>(bytes.size(), 1 << 30), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot be written");
    bytes = bytes.subspan(n);
    offset += n;
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  if (::fsync(fd_) != 0) return Failed("cannot be synced to disk");
  if (::renameat(folder_, temporary().c_str(), folder_, name_.c_str()) != 0)
    return Failed("cannot be renamed into place");
  const bool closed = ::close(std::exchange(fd_, -1)) == 0;
  if (!closed) return Failed("cannot be closed");
  const bool synced = ::fsync(folder_) == 0 || errno == EINVAL;  // some file systems cannot sync folders
  return synced ? absl::OkStatus() : Failed("its folder cannot be synced to disk");
}

std::filesystem::path LibraryFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&LibraryFolder), &info) == 0) return ".";
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace onnxtrain
