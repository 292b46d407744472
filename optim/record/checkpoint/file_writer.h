// Writes the files of a checkpoint with byte count, checksum and sync.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace onnxtrain {

// Extends the CRC-64/XZ (ECMA-182, reflected; by ISA-L) `crc` of the preceding bytes by `bytes`; 0 for the first call.
// It detects every burst of at most 64 bits and all but 2^-64 of other damage. It does not protect against tampering.
uint64_t ExtendCrc64(uint64_t crc, std::span<const std::byte> bytes);

// Returns 16 lower-case hex digits.
std::string Crc64Text(uint64_t crc);

// Repeats a system call while signals interrupt it (EINTR), and returns its result.
template <typename Call>
auto Retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Writes a new file. Whole chunks bypass the page cache if the file system allows it, which saves CPU time and keeps
// the training data cached.
class FileWriter {
 public:
  // Creates the file `name` in the folder with descriptor `folder`. Fails if the file exists.
  static absl::StatusOr<FileWriter> Create(int folder, const std::string& name);
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();

  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text.data(), text.size()))); }
  // Syncs and closes the file.
  absl::Status Finish();

  int64_t size() const { return size_; }
  uint64_t crc() const { return crc_; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  FileWriter(std::string name, int fd);
  absl::Status Flush();
  bool SetDirect(bool direct);
  absl::Status Failed(std::string_view what) const;

  std::string name_;
  int fd_;
  int64_t size_ = 0;
  uint64_t crc_ = 0;
  std::unique_ptr<std::byte, Free> chunk_;  // appended bytes that are not written yet
  size_t filled_ = 0;
  bool direct_ = false;
};

}  // namespace onnxtrain
