// Reads the records of a CSV or TSV file (RFC 4180): quoted fields may hold separators, line ends and doubled quotes.
// Extensions: skips a UTF-8 byte order mark and lines of blanks, accepts CRLF, LF and CR as line ends, and takes a
// quote within an unquoted field literally, finds out that another character separates fields, or reads it from a first
// line "sep=;", and skips lines that begin with '#' before the table. Text is UTF-8, or UTF-16 with a byte order mark,
// unless an encoding is named; fields that are neither are read as RepairUtf8 does.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

class CsvReader {
 public:
  // `separator`: the expected one. Where the first line has none, but semicolons, tabs, bars or commas, these separate;
  // semicolons also where they are between numbers with a decimal comma; runs of blanks where there are numbers between
  // them, and fewer words than numbers.
  // `encoding`: as DecodeText takes it.
  CsvReader(ReadFn read, char separator, const std::string& encoding = "");

  // Reads the next record; false at the end. Errors name the row and the 0-based column.
  absl::StatusOr<bool> Next(std::vector<std::string>* fields);

  // The 1-based row of the last record as a spreadsheet numbers it: header and blank lines count.
  int64_t row() const { return row_; }
  // The one that is used; known after the first record.
  char separator() const { return separator_; }
  // The fields so far that were not UTF-8, and the row and text of the first one.
  int64_t repaired() const { return repaired_; }
  const std::pair<int64_t, std::string>& first_repaired() const { return first_repaired_; }

 private:
  absl::Status ReadMore(size_t bytes);  // reads up to as many more
  absl::Status Fill();
  absl::StatusOr<int> Peek();  // -1 at the end
  absl::Status ReadField(std::string* field);
  absl::Status ReadQuoted(std::string* field);
  absl::Status ReadPlain(std::string* field);
  absl::Status Append(char c, std::string* field);
  absl::StatusOr<bool> EndRecord();  // consumes a separator (false), a line end or the end (true)
  absl::Status Start();
  void TakeSeparatorLine();
  void SkipComments();
  std::string_view WholeLines() const;
  void ChooseSeparator();
  absl::StatusOr<bool> SkipBlanks();  // where they separate; whether there were some
  bool Separates(int c) const { return c == separator_ || (blanks_ && c == '\t'); }
  template <typename... Args>
  absl::Status Fail(const Args&... args) const;

  ReadFn read_;
  char separator_;
  std::string buffer_;
  size_t at_ = 0;
  bool ended_ = false, started_ = false;
  bool named_ = false;   // the file names its separator
  bool blanks_ = false;  // runs of blanks separate
  int64_t row_ = 0, column_ = 0;
  int64_t repaired_ = 0;
  std::pair<int64_t, std::string> first_repaired_;
};

}  // namespace onnxtrain
