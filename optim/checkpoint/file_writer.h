// Writes the files of a checkpoint: every byte is counted, hashed and synced.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "frontend/base/sha256.h"

namespace onnxtrain {

// A new file while it is written.
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
  std::string Sha256Hex() { return hash_.Hex(); }  // once, at the end

 private:
  FileWriter(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}
  absl::Status Failed(std::string_view what) const;

  std::string name_;
  int fd_;
  int64_t size_ = 0;
  Sha256 hash_;
};

}  // namespace onnxtrain
