// Compresses and decompresses Zstandard (RFC 8878).
#pragma once

#include "frontend/data/sources/file.h"

namespace onnxtrain {

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
