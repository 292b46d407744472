#include "frontend/data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

std::string Mebibytes(int64_t bytes) { return StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

}  // namespace

absl::Status ReadExactly(const ReadFn& read, std::span<std::byte> out) {
  ASSIGN_OR_RETURN(const size_t got, read(out));
  if (got == out.size()) return absl::OkStatus();
  return Invalid("unexpected end of file: ", out.size() - got, " bytes are missing");
}

int64_t DefaultMemoryLimit() { return static_cast<int64_t>(AvailableMemory() / 2); }

absl::Status CheckMemory(int64_t bytes, int64_t limit) {
  if (limit == 0) limit = DefaultMemoryLimit();
  if (bytes <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("needs ", Mebibytes(bytes), " of memory, the limit is ", Mebibytes(limit),
                                             " (an .npy is read from disk)"));
}

absl::StatusOr<int64_t> RegularFileSize(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::NotFoundError(StrCat(path, ": ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return Invalid(path, ": not a regular file");
  if (info.st_size == 0) return Invalid(path, ": the file is empty");
  return info.st_size;
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  // O_NONBLOCK: if the path has become a FIFO since the check, opening it does not hang.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Invalid(path, ": ", std::strerror(errno));
  gzFile gz = gzdopen(fd, "rb");
  if (gz == nullptr) {
    close(fd);
    return absl::ResourceExhaustedError(StrCat(path, ": out of memory"));
  }
  gzbuffer(gz, 1 << 18);
  InputFile file;
  file.gz_ = std::shared_ptr<void>(gz, [](void* p) { gzclose_r(static_cast<gzFile>(p)); });
  file.max_size_ = gzdirect(gz) ? size : MaxInflatedBytes(size);
  return file;
}

absl::StatusOr<size_t> InputFile::Read(std::span<std::byte> out) {
  const auto gz = static_cast<gzFile>(gz_.get());
  size_t done = 0;
  while (done < out.size()) {
    const auto want = static_cast<unsigned>(std::min<size_t>(out.size() - done, 1 << 30));
    const int got = gzread(gz, out.data() + done, want);
    int error = Z_OK;
    gzerror(gz, &error);
    if (error == Z_BUF_ERROR) return Invalid("the gzip data is truncated");
    if (got < 0) return Invalid(error == Z_ERRNO ? std::strerror(errno) : "the gzip data is corrupt");
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace onnxtrain
