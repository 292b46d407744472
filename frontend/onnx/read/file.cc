#include "frontend/onnx/read/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include <onnx/onnx_pb.h>

#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "frontend/base/status.h"
#include "frontend/onnx/interop/ort_artifacts.h"
#include "frontend/onnx/read/proto_util.h"

namespace onnxtrain {
namespace {

// Atomic without locks, because a signal handler reads it. An entry with `begin` 0 is free.
struct MappedRange {
  std::atomic<uintptr_t> begin{0}, size{0};
};
std::array<MappedRange, 4096> mapped_ranges;

void Register(const std::byte* data, size_t size) {
  for (MappedRange& range : mapped_ranges) {
    uintptr_t free = 0;
    if (!range.begin.compare_exchange_strong(free, reinterpret_cast<uintptr_t>(data))) continue;
    range.size = size;
    return;
  }
}

void Unregister(const std::byte* data) {
  for (MappedRange& range : mapped_ranges) {
    if (range.begin != reinterpret_cast<uintptr_t>(data)) continue;
    range.size = 0;
    range.begin = 0;
    return;
  }
}

}  // namespace

bool IsInMappedFile(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  return std::ranges::any_of(mapped_ranges, [&](const MappedRange& range) { return at - range.begin < range.size; });
}

void ReleaseMappedPages(std::span<const std::byte> bytes) {
  if (bytes.empty() || !IsInMappedFile(bytes.data())) return;
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()), first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin + bytes.size() - first, MADV_DONTNEED);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Map(int fd) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->fd_ = fd;
  struct stat info;
  if (::fstat(fd, &info) != 0) return Invalid("cannot be examined: ", std::strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_size == 0) return Invalid("cannot be mapped: no regular file with content");
  void* data = ::mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return Invalid("cannot be mapped: ", std::strerror(errno));
  file->data_ = static_cast<const std::byte*>(data);
  file->size_ = info.st_size;
  Register(file->data_, file->size_);
  file->changed_seconds_ = info.st_mtim.tv_sec;
  file->changed_nanoseconds_ = info.st_mtim.tv_nsec;
  return std::shared_ptr<const MappedFile>(file);
}

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Copy(std::span<const std::byte> bytes) {
  const int fd = ::memfd_create("onnxtrain", MFD_CLOEXEC);
  if (fd < 0) return absl::ResourceExhaustedError(StrCat("no memory file: ", std::strerror(errno)));
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), 1 << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const std::string why = std::strerror(errno);
      ::close(fd);
      return absl::ResourceExhaustedError(StrCat("no memory for a copy: ", why));
    }
    bytes = bytes.subspan(written);
  }
  return Map(fd);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    Unregister(data_);
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
  if (fd_ >= 0) ::close(fd_);
}

bool MappedFile::IsUnchanged() const {
  struct stat info;
  return ::fstat(fd_, &info) == 0 && static_cast<size_t>(info.st_size) == size_ &&
         info.st_mtim.tv_sec == changed_seconds_ && info.st_mtim.tv_nsec == changed_nanoseconds_;
}

void MappedFile::ReleasePages() const { ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED); }

namespace {

constexpr std::string_view kLinkHint = " (links are not followed)";

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void Reset(int fd) { Fd old(std::exchange(fd_, fd)); }

 private:
  int fd_;
};

std::string Errno() { return std::strerror(errno); }

// Reads exactly `size` bytes from `offset`.
absl::Status ReadAll(int fd, int64_t offset, std::byte* to, size_t size) {
  while (size > 0) {
    const ssize_t n = ::pread(fd, to, std::min<size_t>(size, 1 << 30), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Invalid("cannot be read: ", Errno());
    if (n == 0) return Invalid("ended while it was read");
    to += n, offset += n, size -= n;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MapProtoFile(const std::string& path) {
  const std::string tag = StrCat(path, ": ");
  // O_NONBLOCK keeps open() from blocking on a pipe and has no effect on regular files.
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0 && errno == ENOENT) return absl::NotFoundError(StrCat(tag, "there is no such file"));
  if (fd.get() < 0) return Invalid(tag, "cannot be opened: ", Errno());
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return Invalid(tag, "cannot be examined: ", Errno());
  if (S_ISDIR(info.st_mode)) return Invalid(tag, "is a folder, not an ONNX file");
  if (!S_ISREG(info.st_mode)) return Invalid(tag, "is not a regular file");
  if (info.st_size == 0) return Invalid(tag, "is empty (0 bytes)");
  if (info.st_size > kMaxProtoBytes) {
    return Invalid(tag, "is ", info.st_size,
                   " bytes long; an ONNX file may have at most 2 GiB (keep weights as external data)");
  }
  auto file = MappedFile::Map(fd.release());
  return file.ok() ? file : Annotate(file.status(), tag);
}

namespace {

// Maps a file, or returns its mapping if one is in use: models of different edits share the pages of their weights.
absl::StatusOr<std::shared_ptr<const MappedFile>> MapOnce(int fd) {
  static absl::Mutex mutex;
  static auto* const mappings = new std::map<std::pair<dev_t, ino_t>, std::weak_ptr<const MappedFile>>;
  struct stat info;
  if (::fstat(fd, &info) != 0) return MappedFile::Map(fd);
  const absl::MutexLock lock(&mutex);
  std::weak_ptr<const MappedFile>& mapping = (*mappings)[{info.st_dev, info.st_ino}];
  if (auto known = mapping.lock(); known != nullptr && known->IsUnchanged()) {
    ::close(fd);
    return known;
  }
  ASSIGN_OR_RETURN(auto mapped, MappedFile::Map(fd));
  mapping = mapped;
  return mapped;
}

}  // namespace

struct ExternalFiles::File {
  File(int opened, int64_t bytes) : fd(opened), size(bytes) {}

  Fd fd;
  int64_t size;
  std::shared_ptr<const MappedFile> mapped;  // null until a large tensor is read
};

ExternalFiles::ExternalFiles(const std::string& model_path) {
  if (model_path.empty()) return;
  folder_ = std::filesystem::path(model_path).parent_path().string();
  if (folder_.empty()) folder_.assign(1, '.');
}

ExternalFiles::~ExternalFiles() {
  if (folder_fd_ >= 0) ::close(folder_fd_);
}

absl::StatusOr<std::vector<std::string>> ExternalFiles::SplitLocation(const std::string& location) {
  if (location.empty()) return Invalid("external data without a location");
  if (location.find('\0') != std::string::npos) return Invalid("external data location holds a NUL character");
  if (location[0] == '/') return Invalid("external data location '", location, "' is an absolute path");
  if (location.find('\\') != std::string::npos)
    return Invalid("external data location '", location, "' holds a backslash");
  std::vector<std::string> parts = absl::StrSplit(location, '/');
  if (parts[0] == ".") parts.erase(parts.begin());
  if (parts.empty()) return Invalid("external data location '", location, "' does not name a file");
  for (const std::string& part : parts) {
    if (part.empty() || part == "." || part == "..") {
      return Invalid("external data location '", location, "' is not a plain path beneath the model's folder");
    }
  }
  return parts;
}

absl::StatusOr<ExternalFiles::File*> ExternalFiles::Open(const std::string& location) {
  if (folder_.empty()) return Invalid("external data: a model in memory has no folder to read files from");
  if (auto it = files_.find(location); it != files_.end()) return it->second.get();
  ASSIGN_OR_RETURN(const std::vector<std::string> parts, SplitLocation(location));
  if (folder_fd_ < 0) folder_fd_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd_ < 0) return Invalid("the model's folder cannot be opened: ", Errno());
  const std::string what = StrCat("external data '", location, "' ");
  Fd at(::dup(folder_fd_));
  for (size_t i = 0; i < parts.size(); ++i) {
    const int kind = i + 1 < parts.size() ? O_DIRECTORY : O_NONBLOCK;
    const int next = ::openat(at.get(), parts[i].c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind);
    if (next < 0) return Invalid(what, "cannot be opened: ", Errno(), errno == ENOENT ? "" : kLinkHint);
    at.Reset(next);
  }
  struct stat info;
  if (::fstat(at.get(), &info) != 0) return Invalid(what, "cannot be examined: ", Errno());
  if (!S_ISREG(info.st_mode)) return Invalid(what, "is not a regular file");
  if (info.st_nlink != 1) return Invalid(what, "is a hard link");
  bytes_in_files_ += info.st_size;
  return (files_[location] = std::make_unique<File>(at.release(), info.st_size)).get();
}

absl::StatusOr<HostTensor> ExternalFiles::Read(const ExternalRange& range, const Type& type) {
  const auto bytes = static_cast<int64_t>(type.bytes());
  if (range.length >= 0 && range.length != bytes) {
    return Invalid("external data has ", range.length, " bytes, ", ToString(type), " needs ", bytes);
  }
  ASSIGN_OR_RETURN(File * file, Open(range.location));
  if (range.offset < 0 || range.offset > file->size || bytes > file->size - range.offset) {
    return Invalid("external data '", range.location, "' has ", file->size, " bytes, ", bytes, " are wanted from byte ",
                   range.offset);
  }
  const std::string what = StrCat("external data '", range.location, "' ");
  const bool aligned = range.offset % static_cast<int64_t>(DTypeSize(type.dtype)) == 0;
  if (!aligned || type.bytes() < kMinMappedBytes) return ReadCopy(range, type, file);
  if (file->mapped == nullptr) {
    auto mapped = MapOnce(::fcntl(file->fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!mapped.ok()) return Annotate(mapped.status(), what);
    // The file may have shrunk since it was opened.
    if (static_cast<int64_t>((*mapped)->size()) != file->size) return Invalid(what, "changes while it is read");
    file->mapped = *std::move(mapped);
  }
  return HostTensor(type, file->mapped, file->mapped->data() + range.offset);
}

absl::StatusOr<HostTensor> ExternalFiles::ReadCopy(const ExternalRange& range, const Type& type, File* file) {
  HostTensor& known = ranges_[{range.location, range.offset, type.bytes()}];
  if (known.bytes().data() != nullptr && known.type().bytes() == type.bytes()) {
    return HostTensor(type, std::make_shared<HostTensor>(known), known.bytes().data());
  }
  // Bounds the memory of overlapping ranges, whose copies could exceed the size of the files many times.
  bytes_copied_ += static_cast<int64_t>(type.bytes());
  if (bytes_copied_ > 2 * bytes_in_files_) return Invalid("external data ranges overlap each other many times");
  HostTensor tensor(type);
  RETURN_IF_ERROR(Annotate(ReadAll(file->fd.get(), range.offset, tensor.mutable_bytes().data(), type.bytes()),
                           StrCat("external data '", range.location, "' ")));
  known = tensor;
  return tensor;
}

std::vector<std::shared_ptr<const MappedFile>> ExternalFiles::mapped() const {
  std::vector<std::shared_ptr<const MappedFile>> files;
  for (const auto& [location, file] : files_) {
    if (file->mapped != nullptr) files.push_back(file->mapped);
  }
  return files;
}

std::vector<std::string> ListModelFiles(const std::string& path) {
  std::vector<std::string> files = ListOrtArtifacts(path);
  files.push_back(path);
  const auto file = MapProtoFile(path);
  const auto model = file.ok() ? ParsePartialModel((*file)->bytes()) : file.status();
  if (!model.ok()) return files;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const absl::Status visited = ForEachTensor(model->proto.get(), [&](onnx::TensorProto* tensor) {
    for (const onnx::StringStringEntryProto& entry : tensor->external_data()) {
      if (entry.key() == "location") files.push_back((folder / entry.value()).string());
    }
    return absl::OkStatus();
  });
  visited.IgnoreError();  // the visitor never fails
  return files;
}

}  // namespace onnxtrain
