// Writes the files of a checkpoint: every byte is counted, checksummed and synced.
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

// CRC-64/XZ (ECMA-182, reflected), by ISA-L: finds every run of at most 64 changed bits, and all but 2^-64 of any other
// damage, at the speed of memory. No protection against intent.

// Returns the checksum of bytes whose beginning has the checksum `crc` and whose end is `bytes`; 0: of no bytes.
uint64_t ExtendCrc64(uint64_t crc, std::span<const std::byte> bytes);

// 16 lower-case hex digits.
std::string Crc64Text(uint64_t crc);

// Calls of the system that a signal may interrupt.

// Calls again while a signal interrupts the call. Returns the result of the last one.
template <typename Call>
auto Retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// A new file while it is written. Whole chunks bypass the page cache where the file system allows: the processors are
// free for the run meanwhile, and its data stay cached.
class FileWriter {
 public:
  // `folder`: a descriptor. Fails where the file is there.
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
  std::unique_ptr<std::byte, Free> chunk_;  // what is appended and not written yet
  size_t filled_ = 0;
  bool direct_ = false;
};

}  // namespace onnxtrain
