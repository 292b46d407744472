#include "optim/checkpoint/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr size_t kChunk = size_t{1} << 20;  // what is hashed is still in the caches when it is written

// Calls again what a signal has interrupted.
template <typename Call>
auto Retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

absl::StatusOr<FileWriter> FileWriter::Create(int folder, const std::string& name) {
  const auto create = [&] { return openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); };
  FileWriter writer(name, Retry(create));
  if (writer.fd_ < 0) return writer.Failed("cannot be created");
  return writer;
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : name_(std::move(other.name_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_), hash_(other.hash_) {}

FileWriter::~FileWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status FileWriter::Failed(std::string_view what) const {
  return absl::UnavailableError(StrCat(name_, " ", what, ": ", std::strerror(errno)));
}

absl::Status FileWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    std::span<const std::byte> chunk = bytes.first(std::min(bytes.size(), kChunk));
    bytes = bytes.subspan(chunk.size());
    hash_.Update(chunk);
    size_ += static_cast<int64_t>(chunk.size());
    while (!chunk.empty()) {
      const ssize_t n = Retry([&] { return write(fd_, chunk.data(), chunk.size()); });
      if (n < 0) return Failed("cannot be written");
      chunk = chunk.subspan(n);
    }
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Finish() {
  if (Retry([&] { return fsync(fd_); }) != 0) return Failed("cannot be synced to disk");
  return close(std::exchange(fd_, -1)) == 0 ? absl::OkStatus() : Failed("cannot be closed");
}

}  // namespace onnxtrain
