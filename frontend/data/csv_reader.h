// Records of a CSV or TSV file, RFC 4180: quoted fields may hold separators, line ends and doubled quotes. Beyond it:
// a UTF-8 byte order mark is skipped, lines end in CRLF, LF or CR, blank lines are no records, and a quote inside a
// field that did not begin with one is a quote. Text must be UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/file.h"

namespace onnxtrain {

class CsvReader {
 public:
  CsvReader(ReadFn read, char separator) : read_(std::move(read)), separator_(separator) {}

  // The next record; false at the end. Errors name the row, and the column by its 0-based number.
  absl::StatusOr<bool> Next(std::vector<std::string>* fields);

  // 1-based number of the last record, as a spreadsheet counts: header and blank lines count too.
  int64_t row() const { return row_; }

 private:
  absl::Status Fill();
  absl::StatusOr<int> Peek();  // -1 at the end
  absl::Status ReadField(std::string* field);
  absl::Status ReadQuoted(std::string* field);
  absl::Status ReadPlain(std::string* field);
  absl::Status Append(char c, std::string* field);
  absl::StatusOr<bool> EndRecord();  // consumes a separator (false), a line end or the end (true)
  absl::Status SkipMark();
  template <typename... Args>
  absl::Status Fail(const Args&... args) const;

  ReadFn read_;
  char separator_;
  std::string buffer_;
  size_t at_ = 0;
  bool ended_ = false, started_ = false;
  int64_t row_ = 0, column_ = 0;
};

// Is it well-formed UTF-8 (no overlong forms, no surrogates)?
bool IsUtf8(std::string_view text);

}  // namespace onnxtrain
