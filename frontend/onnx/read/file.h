// Opens and maps the files of a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"

namespace onnxtrain {

// Releases the resident pages that hold these bytes if IsInMappedFile finds them; the next access reads them again.
// Thread-safe.
void ReleaseMappedPages(std::span<const std::byte> bytes);

// Limits the resident pages during a forward read that may skip bytes: Linux makes up to 2 MiB around each byte that is
// read resident.
class ReadOnce {
 public:
  explicit ReadOnce(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // Releases the pages before `at`, which the caller does not read again.
  void PassedTo(size_t at) {
    if (at - released_ < kStep) return;
    ReleaseMappedPages(bytes_.subspan(released_, at - released_));
    released_ = at;
  }

 private:
  static constexpr size_t kStep = size_t{1} << 20;

  std::span<const std::byte> bytes_;
  size_t released_ = 0;
};

// A read-only mapping of a whole regular file. The file must not be changed in place: readers call IsUnchanged() first,
// and reading past the end of a file that is truncated meanwhile raises SIGBUS (IsInMappedFile). Replacing the file
// under its name is harmless.
class MappedFile {
 public:
  // Takes ownership of the descriptor, also on failure.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Map(int fd);
  // Maps an unnamed file that holds a copy of the bytes, which must not be empty.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Copy(std::span<const std::byte> bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Returns true if the file still has the size and modification time that it was mapped with.
  bool IsUnchanged() const;
  // Releases the resident pages; the next access reads them again.
  void ReleasePages() const;

 private:
  MappedFile() = default;

  int fd_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t changed_seconds_ = 0, changed_nanoseconds_ = 0;
};

// Returns true if the address is in a MappedFile of this process (one of its first 4096). Async-signal-safe, so that a
// SIGBUS handler can distinguish a truncated file from other faults.
bool IsInMappedFile(const void* address);

// The limit of protobuf.
inline constexpr int64_t kMaxProtoBytes = (int64_t{1} << 31) - 2;

// Maps a file that should hold a protobuf: a regular file of 1 byte to 2 GiB. Errors name the path.
absl::StatusOr<std::shared_ptr<const MappedFile>> MapProtoFile(const std::string& path);

// Tensors below this size are copied, which costs less than keeping a page of the file mapped.
inline constexpr size_t kMinMappedBytes = 64 << 10;

// The external_data entries of a tensor. length < 0: not given.
struct ExternalRange {
  std::string location;
  int64_t offset = 0;
  int64_t length = -1;
};

// Reads tensors from files beneath the model's folder. A location is a plain relative path. Every component is opened
// relative to the folder's descriptor and must not be a symlink; the file must not be a hard link, pipe or device. So
// swapping files between check and open gains an attacker nothing.
class ExternalFiles {
 public:
  // An empty path means a model in memory, which cannot refer to files.
  explicit ExternalFiles(const std::string& model_path);
  ~ExternalFiles();
  ExternalFiles(const ExternalFiles&) = delete;
  ExternalFiles& operator=(const ExternalFiles&) = delete;

  // Reads one tensor, as a view of the mapped file if it is large, else as a copy. Tensors of the same range share
  // their bytes. Errors do not name the tensor.
  absl::StatusOr<HostTensor> Read(const ExternalRange& range, const Type& type);

  // Returns the files that tensors are views of.
  std::vector<std::shared_ptr<const MappedFile>> mapped() const;

  // Splits a location into components. Fails unless it is a non-empty relative path without "..", NUL and backslash.
  static absl::StatusOr<std::vector<std::string>> SplitLocation(const std::string& location);

 private:
  struct File;
  absl::StatusOr<File*> Open(const std::string& location);
  absl::StatusOr<HostTensor> ReadCopy(const ExternalRange& range, const Type& type, File* file);

  std::string folder_;  // "": none
  int folder_fd_ = -1;
  std::map<std::string, std::unique_ptr<File>> files_;
  std::map<std::tuple<std::string, int64_t, size_t>, HostTensor> ranges_;
  int64_t bytes_in_files_ = 0, bytes_copied_ = 0;
};

// Returns the files that a model is read from: the model file, external data, and for artifacts of ONNX Runtime's
// training API the eval model and the checkpoints in the same folder. Reads the model. Returns only `path` if the model
// cannot be read; loading it then reports the error.
std::vector<std::string> ListModelFiles(const std::string& path);

}  // namespace onnxtrain
