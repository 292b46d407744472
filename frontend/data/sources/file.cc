#include "frontend/data/sources/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/zstd_stream.h"

namespace onnxtrain {
namespace {

std::string Mebibytes(int64_t bytes) { return StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

// O_NONBLOCK: if the path has become a FIFO since it was checked, opening it does not hang.
absl::StatusOr<int> OpenForReading(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Invalid(path, ": ", std::strerror(errno));
  return fd;
}

bool StartsLikeZstd(const std::string& path) {
  constexpr std::array<unsigned char, 4> kMagic = {0x28, 0xB5, 0x2F, 0xFD};
  std::array<unsigned char, 4> start = {};
  const auto file = RandomFile::Open(path);
  return file.ok() && (*file)->ReadAt(0, std::as_writable_bytes(std::span(start))).ok() && start == kMagic;
}

absl::StatusOr<size_t> ReadGzip(gzFile gz, std::span<std::byte> out) {
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

}  // namespace

absl::StatusOr<std::string> ReadAll(const ReadFn& read, int64_t limit) {
  constexpr size_t kStep = 1 << 16;
  std::string text;
  while (true) {
    const size_t at = text.size();
    text.resize(at + kStep);
    ASSIGN_OR_RETURN(const size_t got, read(std::as_writable_bytes(std::span(text)).subspan(at)));
    text.resize(at + got);
    if (static_cast<int64_t>(text.size()) > limit) return Invalid("more than ", limit, " bytes are refused");
    if (got < kStep) return text;
  }
}

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

bool IsRegularFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

absl::StatusOr<int64_t> RegularFileSize(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::NotFoundError(StrCat(path, ": ", std::strerror(errno)));
  if (!S_ISREG(info.st_mode)) return Invalid(path, ": not a regular file");
  if (info.st_size == 0) return Invalid(path, ": the file is empty");
  return info.st_size;
}

RandomFile::~RandomFile() { close(fd_); }

absl::StatusOr<std::shared_ptr<const RandomFile>> RandomFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  ASSIGN_OR_RETURN(const int fd, OpenForReading(path));
  return std::shared_ptr<const RandomFile>(new RandomFile(fd, size));
}

absl::Status RandomFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(fd_, out.data(), out.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::DataLossError(std::strerror(errno));
    if (got == 0) return absl::DataLossError("the file has become shorter");
    out = out.subspan(got);
    offset += got;
  }
  return absl::OkStatus();
}

ReadFn RandomFile::reader(int64_t offset, int64_t end) const {
  return [this, offset, end](std::span<std::byte> out) mutable -> absl::StatusOr<size_t> {
    const auto size = std::min(out.size(), static_cast<size_t>(end - offset));
    RETURN_IF_ERROR(ReadAt(offset, out.first(size)));
    offset += static_cast<int64_t>(size);
    return size;
  };
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  InputFile file;
  if (StartsLikeZstd(path)) {
    ASSIGN_OR_RETURN(const auto packed, RandomFile::Open(path));
    file.read_ =
        DecompressZstd([packed, read = packed->reader(0, size)](std::span<std::byte> out) { return read(out); });
    file.max_size_ = MaxUnpackedBytes(size);
    return file;
  }
  ASSIGN_OR_RETURN(const int fd, OpenForReading(path));
  gzFile gz = gzdopen(fd, "rb");
  if (gz == nullptr) {
    close(fd);
    return absl::ResourceExhaustedError(StrCat(path, ": out of memory"));
  }
  gzbuffer(gz, 1 << 18);
  const std::shared_ptr<gzFile_s> closer(gz, [](gzFile file) { gzclose_r(file); });
  file.read_ = [closer](std::span<std::byte> out) { return ReadGzip(closer.get(), out); };
  file.max_size_ = gzdirect(gz) ? size : MaxInflatedBytes(size);
  return file;
}

}  // namespace onnxtrain
