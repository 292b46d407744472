// Opens data files with checks of type, size and memory, and decompresses them.
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

// Reverses the bytes of every element of `width` bytes in place.
void SwapBytes(std::span<std::byte> data, size_t width);

// Returns the names in a folder, sorted bytewise, without hidden ones (".DS_Store"). Fails, naming the folder, if it
// cannot be read.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// Reads up to out.size() bytes of a stream; fewer only at its end.
using ReadFn = std::function<absl::StatusOr<size_t>(std::span<std::byte> out)>;

// Fills `out`; fails ("unexpected end of file …") if the stream ends before.
absl::Status ReadExactly(const ReadFn& read, std::span<std::byte> out);

// Returns an upper bound of inflated data: deflate compresses at most by a factor of 1032.
constexpr int64_t MaxInflatedBytes(int64_t stored_bytes) { return stored_bytes * 1032 + 1024; }

// Reads a stream to its end; fails if there are more than `limit` bytes.
absl::StatusOr<std::string> ReadAll(const ReadFn& read, int64_t limit);

// Returns an upper bound of decompressed Zstandard data, in which 4 bytes can encode a block of 128 KiB.
constexpr int64_t MaxUnpackedBytes(int64_t stored_bytes) { return stored_bytes << 15; }

// Returns half of the memory that the process can still allocate.
int64_t DefaultMemoryLimit();
// Fails if `bytes` exceed `limit`; 0: DefaultMemoryLimit().
absl::Status CheckMemory(int64_t bytes, int64_t limit);

// Returns true for a regular file; follows links.
bool IsRegularFile(const std::string& path);

// Returns the size of a regular file in bytes. Fails on an empty file and, without opening it, on anything else (a
// folder, a FIFO, a device). The message names the path.
absl::StatusOr<int64_t> RegularFileSize(const std::string& path);

// A regular file that any thread may read at any offset.
class RandomFile {
 public:
  static absl::StatusOr<std::shared_ptr<const RandomFile>> Open(const std::string& path);
  RandomFile(const RandomFile&) = delete;
  RandomFile& operator=(const RandomFile&) = delete;
  ~RandomFile();

  // Fills `out` with the bytes from `offset`. Fails if the file has become shorter; the message does not name the file.
  absl::Status ReadAt(int64_t offset, std::span<std::byte> out) const;
  // Returns a stream of the bytes [offset, end). The file must outlive it.
  ReadFn reader(int64_t offset, int64_t end) const;
  int64_t size() const { return size_; }  // size when the file was opened

 private:
  RandomFile(int fd, int64_t size) : fd_(fd), size_(size) {}
  int fd_;
  int64_t size_;
};

// Reads a regular file from start to end; decompresses gzip and Zstandard, recognized by the first bytes.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);
  absl::StatusOr<size_t> Read(std::span<std::byte> out) { return read_(out); }
  ReadFn reader() { return read_; }
  // Returns an upper bound of the total bytes that Read returns.
  int64_t max_size() const { return max_size_; }

 private:
  ReadFn read_;
  int64_t max_size_ = 0;
};

// Decompresses a stream of any number of Zstandard frames (RFC 8878). Refuses frames with windows above 128 MiB.
ReadFn DecompressZstd(ReadFn read);

// Compresses data to one Zstandard frame with a checksum, at a fast level.
class ZstdCompressor {
 public:
  // `write` receives compressed bytes; its errors are returned by the call that invoked it.
  explicit ZstdCompressor(std::function<absl::Status(std::span<const std::byte> bytes)> write);
  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Finish();                  // once, at the end
  int64_t size() const { return size_; }  // uncompressed bytes so far

 private:
  struct Context;
  std::shared_ptr<Context> context_;
  int64_t size_ = 0;
};

}  // namespace onnxtrain
