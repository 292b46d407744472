#include "frontend/data/sources/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"

namespace onnxtrain {

void SwapBytes(std::span<std::byte> data, size_t width) {
  if (width < 2) return;
  for (size_t at = 0; at + width <= data.size(); at += width) std::reverse(&data[at], &data[at] + width);
}

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with('.')) names.push_back(std::move(name));
  }
  if (error) return Invalid(path, ": ", error.message());
  std::ranges::sort(names);
  return names;
}

namespace {

constexpr int kMaxWindowLog = 27;

class ZstdStream {
 public:
  explicit ZstdStream(ReadFn read) : read_(std::move(read)), packed_(ZSTD_DStreamInSize()) {
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  }

  absl::StatusOr<size_t> Read(std::span<std::byte> out) {
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    while (to.pos < to.size) {
      if (from_.pos == from_.size) RETURN_IF_ERROR(Fill());
      if (from_.size == 0) break;
      const size_t left = ZSTD_decompressStream(context_.get(), &to, &from_);
      if (ZSTD_isError(left)) return Invalid("the Zstandard data is corrupt: ", ZSTD_getErrorName(left));
      in_frame_ = left != 0;
    }
    return to.pos;
  }

 private:
  absl::Status Fill() {
    ASSIGN_OR_RETURN(const size_t got, read_(std::as_writable_bytes(std::span(packed_))));
    if (got == 0 && in_frame_) return Invalid("the Zstandard data is truncated");
    from_ = {packed_.data(), got, 0};
    return absl::OkStatus();
  }

  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  ReadFn read_;
  std::vector<char> packed_;
  std::unique_ptr<ZSTD_DCtx, Free> context_{ZSTD_createDCtx()};
  ZSTD_inBuffer from_ = {nullptr, 0, 0};
  bool in_frame_ = false;
};

}  // namespace

struct ZstdCompressor::Context {
  explicit Context(std::function<absl::Status(std::span<const std::byte> bytes)> sink)
      : write(std::move(sink)), zstd(ZSTD_createCCtx()), packed(ZSTD_CStreamOutSize()) {
    constexpr int kLevel = 1;  // higher levels gain little on floats
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, kLevel);
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
  }
  ~Context() { ZSTD_freeCCtx(zstd); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Compresses all of `bytes`; with ZSTD_e_end also flushes the frame.
  absl::Status Compress(std::span<const std::byte> bytes, ZSTD_EndDirective mode) {
    ZSTD_inBuffer from = {bytes.data(), bytes.size(), 0};
    for (bool done = false; !done;) {
      ZSTD_outBuffer to = {packed.data(), packed.size(), 0};
      const size_t left = ZSTD_compressStream2(zstd, &to, &from, mode);
      if (ZSTD_isError(left)) return absl::InternalError(StrCat("Zstandard: ", ZSTD_getErrorName(left)));
      RETURN_IF_ERROR(write(std::span(packed).first(to.pos)));
      done = mode == ZSTD_e_end ? left == 0 : from.pos == from.size;
    }
    return absl::OkStatus();
  }

  std::function<absl::Status(std::span<const std::byte> bytes)> write;
  ZSTD_CCtx* zstd;
  std::vector<std::byte> packed;
};

ZstdCompressor::ZstdCompressor(std::function<absl::Status(std::span<const std::byte> bytes)> write)
    : context_(std::make_shared<Context>(std::move(write))) {}

absl::Status ZstdCompressor::Append(std::span<const std::byte> bytes) {
  size_ += static_cast<int64_t>(bytes.size());
  return context_->Compress(bytes, ZSTD_e_continue);
}

absl::Status ZstdCompressor::Finish() { return context_->Compress({}, ZSTD_e_end); }

ReadFn DecompressZstd(ReadFn read) {
  auto stream = std::make_shared<ZstdStream>(std::move(read));
  return [stream](std::span<std::byte> out) { return stream->Read(out); };
}

namespace {

std::string Mebibytes(int64_t bytes) { return StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

// Opens with O_NONBLOCK: opening does not hang if the path has become a FIFO since it was checked.
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
