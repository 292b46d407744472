// Files in: bounded reads, and external data beneath the model's folder.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/graph/host_tensor.h"
#include "frontend/onnx/mapped_file.h"

namespace onnxtrain {

// Any file that claims to be a protobuf: a regular file of 1 byte to 2 GiB. Errors name the path.
absl::StatusOr<std::shared_ptr<const MappedFile>> MapProtoFile(const std::string& path);

// Tensors of fewer bytes are copied: a page of the file costs more.
inline constexpr size_t kMappedFrom = 64 << 10;

// "offset" and "length" of a tensor's external_data. length < 0: not given.
struct ExternalRange {
  std::string location;
  int64_t offset = 0;
  int64_t length = -1;
};

// Reads tensors that live beside the model. A location must be a plain relative path beneath the model's folder; every
// component is opened beneath the folder's descriptor and may be neither a symlink nor (the file) a hard link, a pipe
// or a device, so that swapping files between check and open gains nothing.
class ExternalFiles {
 public:
  explicit ExternalFiles(const std::string& model_path);
  ~ExternalFiles();
  ExternalFiles(const ExternalFiles&) = delete;
  ExternalFiles& operator=(const ExternalFiles&) = delete;

  // The bytes of one tensor: large ones are views of the mapped file, small ones copies. Tensors of the same range share
  // them. Errors carry no tag.
  absl::StatusOr<HostTensor> Read(const ExternalRange& range, const Type& type);

  // The files that tensors look into.
  std::vector<std::shared_ptr<const MappedFile>> mapped() const;

  // Checks a location's form alone: not empty, relative, no "." or "..", no NUL or backslash.
  static absl::StatusOr<std::vector<std::string>> SplitLocation(const std::string& location);

 private:
  struct File;
  absl::StatusOr<File*> Open(const std::string& location);
  absl::StatusOr<HostTensor> ReadCopy(const ExternalRange& range, const Type& type, File* file);

  std::string folder_;
  int folder_fd_ = -1;
  std::map<std::string, std::unique_ptr<File>> files_;
  std::map<std::tuple<std::string, int64_t, size_t>, HostTensor> ranges_;
  int64_t bytes_in_files_ = 0, bytes_copied_ = 0;
};

}  // namespace onnxtrain
