#include "frontend/base/scratch_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

// Not every file system supports unnamed files; elsewhere a file loses its name at once.
int OpenUnnamed(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string path = folder + "/scratch.XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

// Calls `move` with what is left until everything has been moved. Returns false, with errno, if it fails; a file that
// ends too early is EIO.
template <typename Bytes, typename Move>
bool MoveAll(Bytes bytes, const Move& move) {
  constexpr size_t kMost = size_t{1} << 30;  // a call moves less than 2 GiB
  for (Bytes rest = bytes; !rest.empty();) {
    const ssize_t moved =
        move(rest.first(std::min(rest.size(), kMost)), static_cast<int64_t>(bytes.size() - rest.size()));
    if (moved < 0 && errno == EINTR) continue;
    if (moved == 0) errno = EIO;
    if (moved <= 0) return false;
    rest = rest.subspan(moved);
  }
  return true;
}

}  // namespace

std::string ScratchFolder() {
  const char* folder = std::getenv("TMPDIR");
  return folder != nullptr && *folder != '\0' ? folder : "/var/tmp";
}

absl::StatusOr<ScratchFile> ScratchFile::Create(const std::string& folder) {
  ScratchFile file(folder, OpenUnnamed(folder));
  if (file.fd_ < 0) return file.Failed("make");
  return file;
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : folder_(std::move(other.folder_)), fd_(std::exchange(other.fd_, -1)) {}

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status ScratchFile::Failed(std::string_view what) const {
  return absl::UnavailableError(StrCat("cannot ", what, " a temporary file in ", folder_, ": ", std::strerror(errno)));
}

int64_t ScratchFile::FreeBytes() const {
  struct statvfs info = {};
  if (::fstatvfs(fd_, &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

absl::Status ScratchFile::Reserve(int64_t bytes) const {
  if (::fallocate(fd_, 0, 0, bytes) == 0) return absl::OkStatus();
  if (errno == EOPNOTSUPP && ::ftruncate(fd_, bytes) == 0) return absl::OkStatus();
  return Failed("extend");
}

absl::Status ScratchFile::WriteAt(int64_t offset, std::span<const std::byte> bytes) const {
  const bool written = MoveAll(bytes, [&](std::span<const std::byte> rest, int64_t done) {
    return ::pwrite(fd_, rest.data(), rest.size(), offset + done);
  });
  return written ? absl::OkStatus() : Failed("write to");
}

absl::Status ScratchFile::ReadAt(int64_t offset, std::span<std::byte> bytes) const {
  const bool read = MoveAll(bytes, [&](std::span<std::byte> rest, int64_t done) {
    return ::pread(fd_, rest.data(), rest.size(), offset + done);
  });
  return read ? absl::OkStatus() : Failed("read from");
}

}  // namespace onnxtrain
