// Opens model files, and external data beneath the model's folder.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/read/mapped_file.h"

namespace onnxtrain {

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
