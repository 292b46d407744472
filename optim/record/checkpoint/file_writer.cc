#include "optim/record/checkpoint/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <isa-l/crc64.h>
#include "absl/strings/str_format.h"
#include "frontend/base/status.h"

namespace onnxtrain {

uint64_t ExtendCrc64(uint64_t crc, std::span<const std::byte> bytes) {
  return crc64_ecma_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

std::string Crc64Text(uint64_t crc) { return absl::StrFormat("%016x", crc); }

namespace {

constexpr std::align_val_t kAlignment{4096};  // alignment of memory, offsets and sizes for O_DIRECT
constexpr size_t kChunk = size_t{4} << 20;
constexpr size_t kPiece = size_t{128} << 10;  // small enough to be still in the CPU caches for its checksum

}  // namespace

void FileWriter::Free::operator()(std::byte* bytes) const { operator delete(bytes, kAlignment); }

absl::StatusOr<FileWriter> FileWriter::Create(int folder, const std::string& name) {
  const auto create = [&] { return openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); };
  FileWriter writer(name, Retry(create));
  if (writer.fd_ < 0) return writer.Failed("cannot be created");
  return writer;
}

FileWriter::FileWriter(std::string name, int fd)
    : name_(std::move(name)), fd_(fd), chunk_(static_cast<std::byte*>(operator new(kChunk, kAlignment))) {}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : name_(std::move(other.name_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      crc_(other.crc_),
      chunk_(std::move(other.chunk_)),
      filled_(other.filled_),
      direct_(other.direct_) {}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileWriter::Failed(std::string_view what) const {
  return absl::UnavailableError(StrCat(name_, " ", what, ": ", std::strerror(errno)));
}

absl::Status FileWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t piece = std::min({bytes.size(), kPiece, kChunk - filled_});
    std::byte* to = chunk_.get() + filled_;
    std::ranges::copy(bytes.first(piece), to);
    crc_ = ExtendCrc64(crc_, {to, piece});
    size_ += static_cast<int64_t>(piece);
    filled_ += piece;
    bytes = bytes.subspan(piece);
    if (filled_ == kChunk) RETURN_IF_ERROR(Flush());
  }
  return absl::OkStatus();
}

// Returns false if the file system refuses O_DIRECT; some refuse it only at the first write.
bool FileWriter::SetDirect(bool direct) {
  const int flags = fcntl(fd_, F_GETFL);
  return flags >= 0 && fcntl(fd_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

absl::Status FileWriter::Flush() {
  const bool first = size_ == static_cast<int64_t>(kChunk), whole = filled_ == kChunk;
  if (first && whole) direct_ = SetDirect(true);
  if (direct_ && !whole) direct_ = !SetDirect(false);
  std::span<const std::byte> rest(chunk_.get(), std::exchange(filled_, 0));
  while (!rest.empty()) {
    const ssize_t n = Retry([&] { return write(fd_, rest.data(), rest.size()); });
    if (n < 0 && errno == EINVAL && direct_ && SetDirect(false)) {
      direct_ = false;  // also after a short write, whose end is at any offset
      continue;
    }
    if (n < 0) return Failed("cannot be written");
    rest = rest.subspan(n);
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Finish() {
  RETURN_IF_ERROR(Flush());
  if (Retry([&] { return fsync(fd_); }) != 0) return Failed("cannot be synced to disk");
  return close(std::exchange(fd_, -1)) == 0 ? absl::OkStatus() : Failed("cannot be closed");
}

}  // namespace onnxtrain
