// Guarded access to the files of a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Reads up to out.size() bytes of a stream; fewer only at its end.
using ReadFn = std::function<absl::StatusOr<size_t>(std::span<std::byte> out)>;

// Fails ("unexpected end of file …") unless out is filled.
absl::Status ReadExactly(const ReadFn& read, std::span<std::byte> out);

// Deflate packs at most 1032 bytes into one: more was never written, whatever a header declares.
constexpr int64_t MostInflated(int64_t stored_bytes) { return stored_bytes * 1032 + 1024; }

// Half of the memory that the process can still take.
int64_t DefaultMemoryLimit();
// Fails with advice when `bytes` exceed `limit`, where a limit of 0 is the default one.
absl::Status CheckMemory(int64_t bytes, int64_t limit);

// Size of a regular file in bytes. Fails on anything else (a folder, a FIFO, a device) without opening it, and on an
// empty file. The message names the path.
absl::StatusOr<int64_t> RegularFileSize(const std::string& path);

// A regular file read from front to back; gzip is told by its first bytes and unpacked.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);
  absl::StatusOr<size_t> Read(std::span<std::byte> out);
  ReadFn reader() {
    return [this](std::span<std::byte> out) { return Read(out); };
  }
  // No more bytes than this can come out.
  int64_t most_bytes() const { return most_bytes_; }

 private:
  std::shared_ptr<void> gz_;
  int64_t most_bytes_ = 0;
};

}  // namespace onnxtrain
