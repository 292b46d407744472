// Opens the files of a data set with checks of type, size and memory.
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

// Fills `out`; fails ("unexpected end of file …") if the stream ends before.
absl::Status ReadExactly(const ReadFn& read, std::span<std::byte> out);

// Bounds the size of inflated data: deflate packs at most 1032 bytes into one.
constexpr int64_t MaxInflatedBytes(int64_t stored_bytes) { return stored_bytes * 1032 + 1024; }

// Returns half of the memory that the process can still allocate.
int64_t DefaultMemoryLimit();
// Fails if `bytes` exceed `limit`; 0: DefaultMemoryLimit().
absl::Status CheckMemory(int64_t bytes, int64_t limit);

// Returns the size of a regular file in bytes. Fails on an empty file and, without opening it, on anything else (a
// folder, a FIFO, a device). The message names the path.
absl::StatusOr<int64_t> RegularFileSize(const std::string& path);

// Reads a regular file from start to end; decompresses it if its first bytes are those of gzip.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);
  absl::StatusOr<size_t> Read(std::span<std::byte> out);
  ReadFn reader() {
    return [this](std::span<std::byte> out) { return Read(out); };
  }
  // An upper bound of the bytes that Read returns in total.
  int64_t max_size() const { return max_size_; }

 private:
  std::shared_ptr<void> gz_;
  int64_t max_size_ = 0;
};

}  // namespace onnxtrain
