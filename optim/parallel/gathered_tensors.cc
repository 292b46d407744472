#include "optim/parallel/gathered_tensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "backends/backend.h"
#include "frontend/base/status.h"
#include "frontend/onnx/read/file.h"

namespace onnxtrain {
namespace {

// Not every file system supports unnamed files; elsewhere mkostemp creates a file and its name is removed.
int OpenUnnamed(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  std::string path = folder + "/gathered.XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

bool Reserve(int fd, size_t bytes) {
  const auto size = static_cast<off_t>(bytes);
  if (::fallocate(fd, 0, 0, size) == 0) return true;
  return errno == EOPNOTSUPP && ::ftruncate(fd, size) == 0;
}

// Returns true if the folder has room for the tensors and for their written copy.
bool HasRoomForTwo(const std::string& folder, size_t bytes) {
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  return !error && space.available / 2 >= bytes;
}

class FileBuffer : public Buffer {
 public:
  // Returns null if the folder has no room for `bytes` bytes.
  static std::unique_ptr<FileBuffer> Create(const std::string& folder, size_t bytes) {
    if (!HasRoomForTwo(folder, bytes)) return nullptr;
    const int fd = OpenUnnamed(folder);
    if (fd < 0) return nullptr;
    auto buffer = std::make_unique<FileBuffer>(fd);
    if (!Reserve(fd, bytes)) return nullptr;
    auto mapped = MappedFile::Map(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!mapped.ok()) return nullptr;
    buffer->mapped_ = *std::move(mapped);
    return buffer;
  }
  explicit FileBuffer(int fd) : fd_(fd) {}
  ~FileBuffer() override { ::close(fd_); }

  size_t size() const override { return mapped_->size(); }
  // Returns a read-only view of the written bytes; file and mapping share the page cache.
  void* data() override { return const_cast<std::byte*>(mapped_->data()); }
  absl::Status Write(size_t offset, std::span<const std::byte> bytes) override {
    return ForAll(bytes, [&](std::span<const std::byte> rest) {
      return ::pwrite(fd_, rest.data(), rest.size(), static_cast<off_t>(offset + bytes.size() - rest.size()));
    });
  }
  absl::Status Read(size_t offset, std::span<std::byte> bytes) const override {
    return ForAll(bytes, [&](std::span<std::byte> rest) {
      return ::pread(fd_, rest.data(), rest.size(), static_cast<off_t>(offset + bytes.size() - rest.size()));
    });
  }

 private:
  template <typename Bytes, typename Move>
  static absl::Status ForAll(Bytes rest, const Move& move) {
    while (!rest.empty()) {
      const ssize_t n = move(rest.first(std::min<size_t>(rest.size(), size_t{1} << 30)));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return absl::UnavailableError(StrCat("a file of gathered tensors: ", std::strerror(errno)));
      rest = rest.subspan(n);
    }
    return absl::OkStatus();
  }

  const int fd_;
  std::shared_ptr<const MappedFile> mapped_;
};

}  // namespace

absl::Status GatheredTensors::Allocate(Backend& backend, const std::string& folder, std::string_view what) {
  if (layout_.size() == 0) return absl::OkStatus();
  if (!folder.empty()) buffer_ = FileBuffer::Create(folder, layout_.size());
  if (buffer_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(buffer_, AllocateChecked(backend, layout_.size(), what));
  return absl::OkStatus();
}

Region GatheredTensors::At(const std::string& name) const {
  Region region = layout_.At(name);
  region.view.buffer = buffer_.get();
  return region;
}

HostTensor GatheredTensors::View(const std::shared_ptr<const GatheredTensors>& tensors, const std::string& name) {
  const Region region = tensors->At(name);
  return {region.type, tensors, HostMemory(region)};
}

}  // namespace onnxtrain
