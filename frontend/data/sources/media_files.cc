#include "frontend/data/sources/media_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxFile = int64_t{1} << 30;

absl::Status ReadRegularFile(int fd, size_t most, std::vector<uint8_t>* bytes) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Invalid(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return Invalid("not a regular file");
  if (info.st_size > kMaxFile) return Invalid("larger than ", kMaxFile >> 20, " MiB");
  bytes->resize(std::min<size_t>(info.st_size, most));
  for (size_t done = 0; done < bytes->size();) {
    const ssize_t n = read(fd, bytes->data() + done, bytes->size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Invalid(std::strerror(errno));
    if (n == 0) return Invalid("the file has become shorter");
    done += n;
  }
  return absl::OkStatus();
}

class FolderFiles : public MediaFiles {
 public:
  FolderFiles(std::string root, std::vector<std::string> names) : root_(std::move(root)), names_(std::move(names)) {
    if (!root_.empty() && !root_.ends_with('/')) root_ += '/';
  }
  int64_t size() const override { return static_cast<int64_t>(names_.size()); }
  std::string Name(int64_t i) const override { return names_[i]; }
  std::string Describe(int64_t i) const override { return root_ + names_[i]; }
  std::string Path(int64_t i) const override { return Describe(i); }
  absl::Status Read(int64_t i, std::vector<uint8_t>* bytes) const override { return ReadStart(i, SIZE_MAX, bytes); }
  absl::Status ReadStart(int64_t i, size_t most, std::vector<uint8_t>* bytes) const override {
    // O_NONBLOCK: opening a FIFO must not block.
    const int fd = open(Describe(i).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return Invalid(std::strerror(errno));
    absl::Status status = ReadRegularFile(fd, most, bytes);
    close(fd);
    return status;
  }

 private:
  std::string root_;
  std::vector<std::string> names_;
};

}  // namespace

std::shared_ptr<const MediaFiles> FilesInFolder(std::string root, std::vector<std::string> names) {
  return std::make_shared<FolderFiles>(std::move(root), std::move(names));
}

}  // namespace onnxtrain
