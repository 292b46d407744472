// A file in memory that takes none: weights are read from the page cache, which the kernel drops and refills.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onnxtrain {

// The whole of a regular file, read-only. The file must not change while it is mapped: reading beyond an end that somebody
// cut off kills the process. Who reads a mapping asks Unchanged() before. Replacing the file under its name is harmless.
class MappedFile {
 public:
  // Takes the descriptor over, also when it fails.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Map(int fd);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Are size and time of the last change those of the mapping?
  bool Unchanged() const;
  // Gives the resident pages back; reading brings them in again.
  void DropResident() const;

 private:
  MappedFile() = default;

  int fd_ = -1;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t changed_seconds_ = 0, changed_nanoseconds_ = 0;
};

}  // namespace onnxtrain
