#include "frontend/data/sources/rows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/csv.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {
namespace {

enum class FirstRow {
  kSample,
  kNames,
  kNumbers,  // names, some of which are numbers, as in pandas tables of NumPy matrices or tables of counts in R
};

using Record = std::vector<std::string>;

// Numbers of values that are in order by chance often, seldom and never.
constexpr size_t kFewNumbers = 3, kSeveralNumbers = 5, kManyNumbers = 16;

constexpr double kFirstYear = 1800, kLastYear = 2100;

bool IsBlank(const std::string& field) { return TrimBlanks(field).empty(); }

bool IsInteger(const std::string& field) { return ParseInt(TrimBlanks(field)).ok(); }

bool CountFrom(double start, const std::vector<double>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != start + static_cast<double>(i)) return false;
  }
  return true;
}

bool AreInSteps(const std::vector<double>& numbers) { return !numbers.empty() && CountFrom(numbers[0], numbers); }

bool AreInOrder(const std::vector<double>& numbers) {
  return numbers.size() >= kFewNumbers && (std::ranges::adjacent_find(numbers, std::greater_equal()) == numbers.end() ||
                                           std::ranges::adjacent_find(numbers, std::less_equal()) == numbers.end());
}

bool AreEvenlySpaced(const std::vector<double>& numbers) {
  for (size_t i = 2; i < numbers.size(); ++i) {
    if (numbers[i] - numbers[i - 1] != numbers[1] - numbers[0]) return false;
  }
  return true;
}

bool AreYears(const std::vector<double>& numbers) {
  return std::ranges::all_of(numbers, [](double n) { return n == std::floor(n) && n >= kFirstYear && n <= kLastYear; });
}

class Rows {
 public:
  Rows(const Record& first, const Record& next, bool decimal_comma)
      : first_(first), next_(next), decimal_comma_(decimal_comma) {
    for (size_t c = 0; c < first.size(); ++c) {
      const auto number = Parse(first[c]);
      if (!number) continue;
      numbers_.push_back(*number);
      if (const auto below = c < next.size() ? Parse(next[c]) : std::nullopt) below_.push_back(*below);
    }
  }

  FirstRow Classify() const {
    if (std::ranges::all_of(first_, IsBlank)) return FirstRow::kSample;
    if (numbers_.empty()) return HasNames() ? FirstRow::kNames : FirstRow::kSample;
    if (next_.size() != first_.size()) return FirstRow::kSample;
    const bool named = numbers_.size() == first_.size() ? AreNames() : HasCorner() || AreNamesBesideOthers();
    return named ? FirstRow::kNumbers : FirstRow::kSample;
  }

 private:
  // Returns nullopt for "inf", which is a name.
  std::optional<double> Parse(const std::string& field) const {
    const auto number = ParseCsvNumber(field, decimal_comma_);
    return number && std::isfinite(*number) ? number : std::nullopt;
  }
  bool IsNumber(const std::string& field) const { return Parse(field).has_value(); }

  bool HasNames() const {
    const bool plain = std::ranges::none_of(first_, IsBlank) &&
                       std::set<std::string>(first_.begin(), first_.end()).size() == first_.size();
    return plain || (next_.size() == first_.size() && std::ranges::any_of(next_, [&](auto& f) { return IsNumber(f); }));
  }

  // Returns true for years above values that are not years, or numbers in steps of one above others.
  bool AreSeries(size_t fewest) const {
    const bool in_order = AreInOrder(numbers_) && AreEvenlySpaced(numbers_);
    if (in_order && AreYears(numbers_) && !AreYears(below_)) return true;
    return numbers_.size() >= fewest && AreInSteps(numbers_) && !AreInSteps(below_);
  }

  bool HasCorner() const {
    return numbers_.size() == first_.size() - 1 && IsBlank(first_[0]) && !IsBlank(next_[0]) &&
           (CountFrom(0, numbers_) || AreInOrder(numbers_));
  }

  // Returns true if numbers next to other names are names themselves; the first field, a corner, may be blank.
  bool AreNamesBesideOthers() const {
    bool names = false, above_number = false;
    for (size_t c = 0; c < first_.size(); ++c) {
      if (IsNumber(first_[c])) continue;
      if (IsBlank(first_[c]) && (c > 0 || IsBlank(next_[c]))) return false;
      const bool name = !IsMissingValue(first_[c]);
      names |= name;
      above_number |= name && IsNumber(next_[c]);
    }
    if (above_number && numbers_.size() >= kFewNumbers && (CountFrom(0, numbers_) || CountFrom(1, numbers_)))
      return true;
    return names && AreSeries(kSeveralNumbers);
  }

  bool AreNames() const {
    const auto has_fraction = [&](const std::string& field) { return IsNumber(field) && !IsInteger(field); };
    const bool from_zero = numbers_.size() >= kFewNumbers && CountFrom(0, numbers_);
    return (from_zero && std::ranges::any_of(next_, has_fraction)) || AreSeries(kManyNumbers);
  }

  const Record &first_, &next_;
  const bool decimal_comma_;
  std::vector<double> numbers_, below_;  // numbers of the first row, and those below them in the next row
};

// Decides whether the first row names the columns. `next` is the second row, empty if there is none.
//
// Names are not numbers; they are distinct and none is missing, or the next row holds a number. Numbers are names
// - after a blank corner, if the next row begins with a name: from 0, or three or more in order;
// - next to names above numbers: three or more, from 0 or 1;
// - next to other names: five or more in steps of one, above numbers that are not;
// - alone: three or more from 0, above a number with a fraction; or sixteen or more in steps of one, above others;
// - if they are three or more years at equal distances, above numbers that are not years.
FirstRow ClassifyFirstRow(const Record& first, const Record& next, bool decimal_comma) {
  return Rows(first, next, decimal_comma).Classify();
}

using Record = std::vector<std::string>;

constexpr std::string_view kPandasIndex = "Unnamed: 0";  // pandas' name of a column without a name

// Makes column names; repeated ones become "a.1", "a.2" as in pandas.
std::vector<std::string> MakeColumnNames(bool header, const Record& first, std::vector<std::string>* notes) {
  std::set<std::string> taken;
  for (const std::string& field : first) taken.emplace(TrimBlanks(field));
  std::vector<std::string> names;
  for (size_t c = 0; c < first.size(); ++c) {
    std::string name(header ? TrimBlanks(first[c]) : std::string_view());
    if (name.empty()) name = StrCat(header ? "#" : "", c);
    if (std::ranges::count(names, name) > 0) {
      int number = 1;
      while (!taken.insert(StrCat(name, ".", number)).second) ++number;
      notes->push_back(StrCat("several columns are named '", Printable(name), "': column ", c, " is called '",
                              Printable(name), ".", number, "'"));
      name = StrCat(name, ".", number);
    }
    names.push_back(std::move(name));
  }
  return names;
}

// Drops empty fields at the end while there are more than `fields`, since rows may end with separators.
void DropEmptyTrailingFields(Record* record, size_t fields) {
  while (record->size() > fields && IsBlank(record->back())) record->pop_back();
}

absl::StatusOr<std::vector<bool>> FindLabelColumns(const std::vector<std::string>& names,
                                                   std::vector<std::string> label) {
  if (label.empty()) label.push_back(StrCat(names.size() - 1));
  std::vector<bool> is_label(names.size(), false);
  for (const std::string& name : label) {
    auto it = std::find(names.begin(), names.end(), name);
    size_t index = it - names.begin();
    if (const auto number = ParseInt(name); it == names.end() && number.ok() && *number >= 0) index = *number;
    if (index >= names.size()) {
      return absl::NotFoundError(StrCat("there is no column '", name, "' among ", names.size(), " columns from '",
                                        Printable(names[0]), "' to '", Printable(names.back()), "'"));
    }
    is_label[index] = true;
  }
  return is_label;
}

// Returns true for 0, 1, 2 …, the index that pandas writes, or 1, 2, 3 …, that of R.
bool NumbersRows(const HostTensor& column) {
  if (IsFloat(column.dtype()) || column.size() == 0) return false;
  const int64_t first = column.IntAt(0);
  for (int64_t i = 0; i < column.size(); ++i) {
    if (column.IntAt(i) != first + i) return false;
  }
  return first == 0 || first == 1;
}

// Drops trailing names above blank fields, and adds a name before a header of R, which omits that of row names.
void FitHeader(Record row, Record* header) {
  if (row.size() == header->size() + 1 && !IsBlank(row.back())) header->insert(header->begin(), "");
  if (row.size() != header->size()) return;
  DropEmptyTrailingFields(&row, 1);
  DropEmptyTrailingFields(header, row.size());
}

// Returns true for a comment line "# …" within the table, possibly padded with separators. Fields like "#ff0000" and
// "#N/A" are no comments.
bool IsComment(const Record& record, size_t fields, bool numbers_first) {
  if (!record[0].starts_with('#')) return false;
  Record trimmed = record;
  DropEmptyTrailingFields(&trimmed, 1);
  if (record.size() < fields || trimmed.size() > fields || (fields > 1 && trimmed.size() == 1)) return true;
  return numbers_first && (record[0].size() == 1 || record[0][1] == ' ' || record[0][1] == '#');
}

// Returns true for the first row of scikit-learn's tables: numbers of rows and of features, then class names.
bool HoldsCountsAndClasses(const Record& record, const Record& next) {
  if (record.size() < 4 || next.size() < 2) return false;
  const auto rows = ParseInt(record[0]), columns = ParseInt(record[1]);
  if (!rows.ok() || !columns.ok() || *columns != std::ssize(next) - 1) return false;
  const auto is_number = [](const std::string& field) { return IsCsvNumber(field); };
  return std::ranges::all_of(next, is_number) && std::ranges::none_of(record.begin() + 2, record.end(), is_number) &&
         std::ranges::none_of(record, IsBlank);
}

class Table {
 public:
  Table(std::string path, ReadFn read, char separator, const DatasetOptions& options)
      : path_(std::move(path)),
        separator_(separator),
        reader_(std::move(read), separator, options.encoding),
        options_(options),
        limit_(options.max_bytes != 0 ? options.max_bytes : DefaultMemoryLimit()) {}

  absl::StatusOr<std::shared_ptr<const Dataset>> Load() {
    Record first, record;
    ASSIGN_OR_RETURN(bool more, NextRecord(&first));
    if (!more) return Invalid("there are no rows");
    first_row_ = reader_.row();
    fields_ = first.size();
    numbers_first_ = IsCsvNumber(first[0]);
    ASSIGN_OR_RETURN(more, NextRecord(&record));
    if (options_.header == Header::kAuto && more && HoldsCountsAndClasses(first, record)) {
      TakeClasses(first);
      first = record;
      first_row_ = reader_.row();
      ASSIGN_OR_RETURN(more, NextRecord(&record));
    }
    numbers_first_ = numbers_first_ || (more && IsCsvNumber(record[0]));
    const bool header = HasHeader(first, more ? record : Record());
    if (header && more) FitHeader(record, &first);
    RETURN_IF_ERROR(MakeColumns(header, first));
    if (!header) RETURN_IF_ERROR(Add(first_row_, first));
    while (more) {
      RETURN_IF_ERROR(Add(reader_.row(), record));
      ASSIGN_OR_RETURN(more, NextRecord(&record));
    }
    if (rows_.empty()) return Invalid("there are no rows after the header");
    return Finish();
  }

 private:
  // Semicolons are used where the comma is the decimal separator.
  bool decimal_comma() const { return reader_.separator() == ';'; }

  bool HasHeader(const Record& first, const Record& next) {
    if (options_.header != Header::kAuto) return options_.header == Header::kYes;
    const FirstRow kind = ClassifyFirstRow(first, next, decimal_comma());
    if (kind == FirstRow::kNumbers) {
      notes_.push_back(StrCat("row ", first_row_, " names columns by numbers, '", Printable(first.back()),
                              "' the last one (`header` no: it is a sample)"));
    }
    return kind != FirstRow::kSample;
  }

  void TakeClasses(const Record& first) {
    classes_.assign(first.begin() + 2, first.end());
    notes_.push_back(StrCat("row ", first_row_, " has the counts and the ", classes_.size(), " classes from '",
                            Printable(classes_.front()), "' to '", Printable(classes_.back()),
                            "', as scikit-learn writes them"));
  }

  // Reads the next record that is neither a comment nor empty.
  absl::StatusOr<bool> NextRecord(Record* record) {
    while (true) {
      ASSIGN_OR_RETURN(const bool more, reader_.Next(record));
      if (!more) return false;
      if (fields_ > 0 && IsComment(*record, fields_, numbers_first_)) {
        ++comments_;
      } else if (record->size() == 1 || !std::ranges::all_of(*record, IsBlank)) {
        return true;
      } else {
        ++empty_rows_;
      }
    }
  }

  absl::Status MakeColumns(bool header, const Record& first) {
    const std::vector<std::string> names = MakeColumnNames(header, first, &notes_);
    ASSIGN_OR_RETURN(const std::vector<bool> is_label, FindLabelColumns(names, options_.label));
    has_unnamed_first_ = header && (IsBlank(first[0]) || TrimBlanks(first[0]) == kPandasIndex);
    DatasetOptions options = options_;
    names_classes_ = !classes_.empty() && is_label.back() && std::ranges::count(is_label, true) == 1;
    if (names_classes_ && options.class_names.empty()) options.class_names = classes_;
    for (size_t c = 0; c < names.size(); ++c) {
      if (options_.text.contains(StrCat(c))) options.text.names.insert(names[c]);
      is_text_.push_back(options.text.contains(names[c]) || (options.text_labels && is_label[c]));
      columns_.push_back(
          MakeCsvColumn({.path = path_, .name = names[c], .decimal_comma = decimal_comma(), .trim_classes = true},
                        is_label[c], options));
    }
    return absl::OkStatus();
  }

  absl::Status Add(int64_t row, Record& record) {
    rows_.push_back(row);
    DropEmptyTrailingFields(&record, columns_.size());
    const size_t numbers = rows_.size() * (columns_.size() + 1) * sizeof(int64_t);
    for (size_t c = 0; c < std::min(record.size(), is_text_.size()); ++c) text_bytes_ += is_text_[c] * record[c].size();
    RETURN_IF_ERROR(CheckMemory(static_cast<int64_t>(numbers + text_bytes_), limit_));
    if (record.size() != columns_.size()) return AddRagged(row, record.size());
    if (names_classes_) {
      const auto index = ParseInt(TrimBlanks(record.back()));
      if (index.ok() && *index >= 0 && *index < std::ssize(classes_)) record.back() = classes_[*index];
    }
    for (size_t c = 0; c < record.size(); ++c) RETURN_IF_ERROR(columns_[c]->Add(row, record[c]));
    return absl::OkStatus();
  }

  absl::Status AddRagged(int64_t row, size_t fields) {
    const std::string why = StrCat("row ", row, " has ", fields, " fields, row ", first_row_, " has ", columns_.size());
    if (!options_.skip_bad) return Invalid(why);
    for (auto& column : columns_) column->AddUnreadable(StrCat(path_, ": ", why));
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Finish() {
    std::vector<NamedTensor> columns;
    for (auto& column : columns_) columns.push_back(column->Finish());
    DescribeSeparator();
    DescribeRepairs();
    DescribeValues();
    if (has_unnamed_first_ && columns.size() > 2 && NumbersRows(columns[0].tensor))
      columns[0].problem = StrCat(path_, ": column '", columns[0].name, "', which has no name, numbers the rows");
    ASSIGN_OR_RETURN(auto table,
                     MakeMemoryDataset(std::move(columns), [path = path_, rows = std::move(rows_)](int64_t i) {
                       return StrCat(path, ": row ", rows[i]);
                     }));
    return WithNotes(std::move(table), std::move(notes_));
  }

  void DescribeSeparator() {
    const char found = reader_.separator();
    if (found == separator_) return;
    const std::string name = found == '\t' ? "tabs" : found == ' ' ? "blanks" : StrCat("'", std::string(1, found), "'");
    notes_.push_back(StrCat("fields are separated by ", name, decimal_comma() ? "; 1,5 is read as 1.5" : ""));
  }

  void DescribeRepairs() {
    const auto& [row, text] = reader_.first_repaired();
    if (reader_.repaired() == 0) return;
    notes_.push_back(StrCat(path_, ": row ", row, ": the text is not UTF-8 and is read as Windows-1252: '",
                            Printable(text), "'; ", reader_.repaired(),
                            " such fields (`encoding` NAME if it is another)"));
  }

  void DescribeValues() {
    if (empty_rows_ > 0) notes_.push_back(StrCat("left out: ", empty_rows_, " rows without values"));
    if (comments_ > 0) notes_.push_back(StrCat("left out: ", comments_, " lines of comments (#)"));
    int described = 0;
    for (const auto& column : columns_) {
      const std::string note = column->note();
      if (!note.empty() && ++described <= kMaxNotes) notes_.push_back(note);
    }
    if (described > kMaxNotes) notes_.push_back(StrCat("and so in ", described - kMaxNotes, " more columns"));
  }

  std::string path_;
  char separator_;
  CsvReader reader_;
  const DatasetOptions& options_;
  int64_t limit_;
  std::vector<std::unique_ptr<CsvColumn>> columns_;
  std::vector<bool> is_text_;  // one flag per column
  size_t text_bytes_ = 0;
  bool has_unnamed_first_ = false;
  std::vector<std::string> notes_;
  static constexpr int kMaxNotes = 4;  // limit on notes about columns
  int64_t empty_rows_ = 0, comments_ = 0;
  size_t fields_ = 0;                 // number of fields of the first record
  bool numbers_first_ = false;        // the first column holds numbers
  std::vector<std::string> classes_;  // class names of scikit-learn's first row
  bool names_classes_ = false;        // classes_ belong to the label column
  int64_t first_row_ = 1;             // row of the header, or of the first record
  std::vector<int64_t> rows_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> ReadCsv(const std::string& name, const ReadFn& read, char separator,
                                                       const DatasetOptions& options) {
  auto dataset = Table(name, read, separator, options).Load();
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(name, ": "));
  return dataset;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenCsv(const std::string& path, char separator,
                                                       const DatasetOptions& options) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  return ReadCsv(path, file.reader(), separator, options);
}

}  // namespace onnxtrain
