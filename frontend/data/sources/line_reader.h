// Reads a stream line by line.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

class LineReader {
 public:
  explicit LineReader(ReadFn read) : read_(std::move(read)) {}

  // Reads the next line without its end (LF or CRLF); false at the end. Skips a UTF-8 byte order mark. Refuses lines of
  // more than 256 MiB.
  absl::StatusOr<bool> Next(std::string* line);
  // The 1-based number of the last line.
  int64_t number() const { return number_; }

 private:
  absl::StatusOr<bool> Fill();

  ReadFn read_;
  std::string buffer_;
  size_t at_ = 0;
  int64_t number_ = 0;
};

}  // namespace onnxtrain
