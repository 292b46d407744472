#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/bytes.h"
#include "frontend/data/formats/npy.h"
#include "frontend/data/memory_dataset.h"

namespace onnxtrain {
namespace {

constexpr int64_t kHeldInMemory = int64_t{64} << 20;

// A row-major array on disk.
class NpyFile : public Dataset {
 public:
  NpyFile(std::string path, int fd, const NpyHeader& header, Column column)
      : path_(std::move(path)), fd_(fd), header_(header), columns_{std::move(column)} {}
  ~NpyFile() override { close(fd_); }

  int64_t size() const override { return header_.type.shape[0]; }
  const std::vector<Column>& columns() const override { return columns_; }
  std::string Describe(int64_t i) const override { return StrCat(path_, ": sample ", i); }

  absl::Status Read(int64_t i, int c, const ReadPass&, std::span<std::byte> out) const override {
    CHECK(c == 0 && i >= 0 && i < size() && out.size() == columns_[0].sample.bytes());
    RETURN_IF_ERROR(ReadAt(header_.offset + i * static_cast<int64_t>(out.size()), out, i));
    if (header_.big_endian) SwapBytes(out, DTypeSize(header_.type.dtype));
    if (header_.type.dtype == DType::kBool) {
      for (std::byte& b : out) b = static_cast<std::byte>(b != std::byte{0});
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadAt(int64_t offset, std::span<std::byte> out, int64_t i) const {
    while (!out.empty()) {
      const ssize_t got = pread(fd_, out.data(), out.size(), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return absl::DataLossError(StrCat(Describe(i), ": ", std::strerror(errno)));
      if (got == 0) return absl::DataLossError(StrCat(Describe(i), ": the file has become shorter"));
      out = out.subspan(got);
      offset += got;
    }
    return absl::OkStatus();
  }

  std::string path_;
  int fd_;
  NpyHeader header_;
  std::vector<Column> columns_;
};

absl::StatusOr<std::shared_ptr<const Dataset>> Open(const std::string& path, int64_t size,
                                                    const DatasetOptions& options) {
  const std::string name = std::filesystem::path(path).stem().string();
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Invalid(std::strerror(errno));
  const std::shared_ptr<void> closer(nullptr, [fd](void*) { close(fd); });
  const ReadFn read = [fd](std::span<std::byte> out) -> absl::StatusOr<size_t> {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t got = ::read(fd, out.data() + done, out.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Invalid(std::strerror(errno));
      if (got == 0) break;
      done += got;
    }
    return done;
  };
  ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(read));
  const bool in_memory = header.fortran || static_cast<int64_t>(header.type.bytes()) <= kHeldInMemory;
  if (in_memory) {
    if (lseek(fd, 0, SEEK_SET) != 0) return Invalid(std::strerror(errno));
    ASSIGN_OR_RETURN(HostTensor tensor, ReadNpy(read, size, options.max_bytes));
    return MakeMemoryDataset({{name, tensor}}, [path](int64_t i) { return StrCat(path, ": sample ", i); });
  }
  if (header.offset + static_cast<int64_t>(header.type.bytes()) != size) {
    return Invalid("the header declares ", ToString(header.type), ", but the file has ", size, " bytes");
  }
  ASSIGN_OR_RETURN(Column column, MakeColumn(name, header.type));
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return Invalid(std::strerror(errno));
  return std::make_shared<NpyFile>(path, own, header, std::move(column));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> OpenNpy(const std::string& path, const DatasetOptions& options) {
  ASSIGN_OR_RETURN(const int64_t size, RegularFileSize(path));
  auto dataset = Open(path, size, options);
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

}  // namespace onnxtrain
