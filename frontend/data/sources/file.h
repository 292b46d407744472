// Opens the files of a data set with checks of type, size and memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Changes byte order in place.

// Reverses the bytes of every element of `width` bytes.
void SwapBytes(std::span<std::byte> data, size_t width);

// Lists folders of samples.

// Returns the names in a folder, sorted by their bytes, without hidden ones (".DS_Store"). Fails, naming the folder,
// where it cannot be read.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// Reads up to out.size() bytes of a stream; fewer only at its end.
using ReadFn = std::function<absl::StatusOr<size_t>(std::span<std::byte> out)>;

// Fills `out`; fails ("unexpected end of file …") if the stream ends before.
absl::Status ReadExactly(const ReadFn& read, std::span<std::byte> out);

// Bounds the size of inflated data: deflate packs at most 1032 bytes into one.
constexpr int64_t MaxInflatedBytes(int64_t stored_bytes) { return stored_bytes * 1032 + 1024; }

// Fills a growing string with all that is left of a stream; fails if that is more than `limit` bytes.
absl::StatusOr<std::string> ReadAll(const ReadFn& read, int64_t limit);

// Bounds the size of unpacked Zstandard, whose blocks of 4 bytes can stand for 128 KiB.
constexpr int64_t MaxUnpackedBytes(int64_t stored_bytes) { return stored_bytes << 15; }

// Returns half of the memory that the process can still allocate.
int64_t DefaultMemoryLimit();
// Fails if `bytes` exceed `limit`; 0: DefaultMemoryLimit().
absl::Status CheckMemory(int64_t bytes, int64_t limit);

// Whether there is a regular file, neither a folder nor a FIFO; links are followed.
bool IsRegularFile(const std::string& path);

// Returns the size of a regular file in bytes. Fails on an empty file and, without opening it, on anything else (a
// folder, a FIFO, a device). The message names the path.
absl::StatusOr<int64_t> RegularFileSize(const std::string& path);

// A regular file that threads read at offsets of their own.
class RandomFile {
 public:
  static absl::StatusOr<std::shared_ptr<const RandomFile>> Open(const std::string& path);
  RandomFile(const RandomFile&) = delete;
  RandomFile& operator=(const RandomFile&) = delete;
  ~RandomFile();

  // Fills `out` with the bytes from `offset`. The message does not name the file, which may have become shorter.
  absl::Status ReadAt(int64_t offset, std::span<std::byte> out) const;
  // A stream of the bytes [offset, end). The file must outlive it.
  ReadFn reader(int64_t offset, int64_t end) const;
  int64_t size() const { return size_; }  // when it was opened

 private:
  RandomFile(int fd, int64_t size) : fd_(fd), size_(size) {}
  int fd_;
  int64_t size_;
};

// Reads a regular file from start to end; decompresses it if its first bytes are those of gzip or Zstandard.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);
  absl::StatusOr<size_t> Read(std::span<std::byte> out) { return read_(out); }
  ReadFn reader() { return read_; }
  // An upper bound of the bytes that Read returns in total.
  int64_t max_size() const { return max_size_; }

 private:
  ReadFn read_;
  int64_t max_size_ = 0;
};

// Compresses and decompresses Zstandard (RFC 8878).

// A decompressed stream of `read`; any number of frames. Frames with windows of more than 128 MiB are refused.
ReadFn DecompressZstd(ReadFn read);

// Compresses what is appended to one frame with a checksum, fast.
class ZstdCompressor {
 public:
  // `write` takes the compressed bytes; a failure of it ends the call that made it.
  explicit ZstdCompressor(std::function<absl::Status(std::span<const std::byte> bytes)> write);
  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Finish();                  // once, at the end
  int64_t size() const { return size_; }  // of what was appended

 private:
  struct Context;
  std::shared_ptr<Context> context_;
  int64_t size_ = 0;
};

}  // namespace onnxtrain
