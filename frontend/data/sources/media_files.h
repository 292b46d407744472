// The files of a column of pictures or sounds: in a folder, in archives, or in the values of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace onnxtrain {

// Immutable and thread-safe.
class MediaFiles {
 public:
  virtual ~MediaFiles() = default;
  virtual int64_t size() const = 0;
  // Replaces *bytes by the contents of the file of sample i.
  virtual absl::Status Read(int64_t i, std::vector<uint8_t>* bytes) const = 0;
  // Replaces *bytes by at least the first `most` bytes of the file, or all if it is shorter.
  virtual absl::Status ReadStart(int64_t i, size_t most, std::vector<uint8_t>* bytes) const { return Read(i, bytes); }
  // Return the name, "cat/7.jpg", and the path for messages, "photos/cat/7.jpg".
  virtual std::string Name(int64_t i) const = 0;
  virtual std::string Describe(int64_t i) const = 0;
  // Returns the path of a file on disk; "" if the bytes are elsewhere.
  virtual std::string Path(int64_t i) const { return ""; }
};

// Returns the files `names` in the folder `root`.
std::shared_ptr<const MediaFiles> FilesInFolder(std::string root, std::vector<std::string> names);

}  // namespace onnxtrain
