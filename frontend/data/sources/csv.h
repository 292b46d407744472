// Reads CSV and TSV files: records (CsvReader), and columns of numbers, texts or classes made of their fields
// (CsvColumn).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

// Reads the records of a CSV or TSV file (RFC 4180): quoted fields may contain separators, line ends and doubled
// quotes. Extensions: skips a UTF-8 byte order mark, blank lines, and comment lines "#…" before the table; accepts
// CRLF, LF and CR as line ends; a quote within an unquoted field is literal; the separator is detected or read from a
// first line "sep=;". Text is UTF-8, or UTF-16 with a byte order mark, or in the given encoding; invalid UTF-8 is
// converted by RepairUtf8.
class CsvReader {
 public:
  // `separator` is the expected one. If the first line has none, chooses semicolons, tabs, bars or commas if it has
  // those; semicolons also if they separate numbers with a decimal comma; runs of blanks if they separate more numbers
  // than words. `encoding`: as for DecodeText.
  CsvReader(ReadFn read, char separator, const std::string& encoding = "");

  // Reads the next record; returns false at the end. Errors name the row and the 0-based column.
  absl::StatusOr<bool> Next(std::vector<std::string>* fields);

  // Returns the 1-based row of the last record as in a spreadsheet: header and blank lines count.
  int64_t row() const { return row_; }
  // Returns the separator in use, which is known after the first record.
  char separator() const { return separator_; }
  // Return the number of fields so far that were not UTF-8, and row and text of the first one.
  int64_t repaired() const { return repaired_; }
  const std::pair<int64_t, std::string>& first_repaired() const { return first_repaired_; }

 private:
  absl::Status ReadMore(size_t bytes);  // appends up to `bytes` bytes to the buffer
  absl::Status Fill();
  absl::StatusOr<int> Peek();  // -1 at the end
  absl::Status ReadField(std::string* field);
  absl::Status ReadQuoted(std::string* field);
  absl::Status ReadPlain(std::string* field);
  absl::Status Append(char c, std::string* field);
  absl::StatusOr<bool> EndRecord();  // consumes a separator (returns false), or a line end or the end (returns true)
  absl::Status Start();
  void ConsumeSeparatorLine();
  void SkipComments();
  std::string_view WholeLines() const;
  void ChooseSeparator();
  absl::StatusOr<bool> SkipBlanks();  // if they are separators; returns true if there were some
  bool Separates(int c) const { return c == separator_ || (blanks_ && c == '\t'); }
  template <typename... Args>
  absl::Status Fail(const Args&... args) const;

  ReadFn read_;
  char separator_;
  std::string buffer_;
  size_t at_ = 0;
  bool ended_ = false, started_ = false;
  bool named_ = false;   // the file has a line "sep="
  bool blanks_ = false;  // runs of blanks are separators
  int64_t row_ = 0, column_ = 0;
  int64_t repaired_ = 0;
  std::pair<int64_t, std::string> first_repaired_;
};

std::string_view TrimBlanks(std::string_view s);
// Parses a number, ignoring surrounding blanks: also 1,234.5, 12% and $5; with `decimal_comma`, 1,5 and 1.234,5 instead
// of 1,234.5. Returns nullopt for other texts and for NaN, which marks a missing value.
std::optional<double> ParseCsvNumber(std::string_view s, bool decimal_comma = false);
bool IsCsvNumber(std::string_view s, bool decimal_comma = false);
// Returns true for "", NA, NaN, null, none, ?, -, . and variants of case, ignoring surrounding blanks.
bool IsMissingValue(std::string_view s);

struct CsvColumnSpec {
  std::string path, name;
  const char* unit = "row";  // what messages call a sample
  enum class Text : uint8_t { kProblem, kCategories, kAlwaysCategories } text = Text::kProblem;
  bool keep_missing = false, skip_bad = false;  // treatment of missing and unusable values, see DatasetOptions
  bool decimal_comma = false;
  bool trim_classes = false;              // strip blanks around class names
  std::vector<std::string> classes = {};  // order of a label column's classes; empty: sorted
};

class CsvColumn {
 public:
  virtual ~CsvColumn() = default;
  // Adds a field; `row` is numbered as in a spreadsheet. Fails only if the whole file is unusable.
  virtual absl::Status Add(int64_t row, const std::string& field) = 0;
  // Adds a sample whose row cannot be read, for the reason `why`.
  virtual void AddUnreadable(std::string why) = 0;
  virtual NamedTensor Finish() = 0;
  // Returns a note on how fields other than plain numbers were read; "" if there are none.
  virtual std::string note() const { return ""; }
};

// Makes a column of numbers, or of categories if the specification allows them.
std::unique_ptr<CsvColumn> MakeFeatureColumn(CsvColumnSpec spec);
// Makes a column of unchanged text.
std::unique_ptr<CsvColumn> MakeTextColumn(CsvColumnSpec spec);
// Makes a column of numbers, or of names that become indices into the sorted or given classes.
std::unique_ptr<CsvColumn> MakeLabelColumn(CsvColumnSpec spec);

// Makes the column that DatasetOptions asks for, which override the specification.
std::unique_ptr<CsvColumn> MakeCsvColumn(CsvColumnSpec spec, bool is_label, const DatasetOptions& options);

}  // namespace onnxtrain
