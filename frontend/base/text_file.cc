#include "frontend/base/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

absl::Status Errno(const std::string& path) { return Invalid(path, ": ", std::strerror(errno)); }

// Reads what is there now, up to the limit: the file may be growing.
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

}  // namespace onnxtrain
