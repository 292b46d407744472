#include "frontend/data/formats/csv.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_split.h"
#include "frontend/base/printable.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/formats/csv_columns.h"
#include "frontend/data/formats/csv_reader.h"
#include "frontend/data/memory_dataset.h"

namespace onnxtrain {
namespace {

using Record = std::vector<std::string>;

bool LooksLikeHeader(const Record& record) {
  const auto is_name = [](const std::string& field) { return !TrimBlanks(field).empty() && !IsCsvNumber(field); };
  return std::all_of(record.begin(), record.end(), is_name) &&
         std::set<std::string>(record.begin(), record.end()).size() == record.size();
}

bool HasHeader(Header option, const Record& first) {
  return option == Header::kAuto ? LooksLikeHeader(first) : option == Header::kYes;
}

// Finds a separator other than the expected one: all of a row is one field, or numbers like 1,5;2,5 fall apart.
absl::Status CheckSeparator(const Record& first, char separator) {
  for (const char other : {';', '\t', '|', ','}) {
    if (other == separator) continue;
    const auto has = [&](const std::string& field) { return field.find(other) != std::string::npos; };
    const auto numbers = [&](const std::string& field) {
      const std::vector<std::string> parts = absl::StrSplit(field, other);
      return std::all_of(parts.begin(), parts.end(), IsCsvNumber);
    };
    const bool found = std::any_of(first.begin(), first.end(), has);
    if (!found || (first.size() > 1 && !std::all_of(first.begin(), first.end(), numbers))) continue;
    const std::string name = other == '\t' ? "a tab" : StrCat("'", std::string(1, other), "'");
    return Invalid("the fields seem to be separated by ", name, ": expected ", separator == '\t' ? "tabs" : "commas",
                   " (a .csv file has commas between fields and a point in numbers, a .tsv file has tabs)");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MakeColumnNames(bool header, const Record& first) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (size_t c = 0; c < first.size(); ++c) {
    names.emplace_back(header ? TrimBlanks(first[c]) : std::string_view());
    if (names.back().empty()) names.back() = StrCat(header ? "#" : "", c);
    if (!seen.insert(names.back()).second)
      return Invalid("row 1: two columns are named '", Printable(names.back()), "'");
  }
  return names;
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

class Table {
 public:
  Table(std::string path, ReadFn read, char separator, const DatasetOptions& options)
      : path_(std::move(path)),
        separator_(separator),
        reader_(std::move(read), separator),
        options_(options),
        limit_(options.max_bytes != 0 ? options.max_bytes : DefaultMemoryLimit()) {}

  absl::StatusOr<std::shared_ptr<const Dataset>> Load() {
    Record record;
    ASSIGN_OR_RETURN(bool more, reader_.Next(&record));
    if (!more) return Invalid("there are no rows");
    RETURN_IF_ERROR(CheckSeparator(record, separator_));
    const bool header = HasHeader(options_.header, record);
    RETURN_IF_ERROR(MakeColumns(header, record));
    if (!header) RETURN_IF_ERROR(Add(record));
    while (true) {
      ASSIGN_OR_RETURN(more, reader_.Next(&record));
      if (!more) break;
      RETURN_IF_ERROR(Add(record));
    }
    if (rows_.empty()) return Invalid("there are no rows after the header");
    return Finish();
  }

 private:
  absl::Status MakeColumns(bool header, const Record& first) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, MakeColumnNames(header, first));
    ASSIGN_OR_RETURN(const std::vector<bool> is_label, FindLabelColumns(names, options_.label));
    DatasetOptions options = options_;
    for (size_t c = 0; c < names.size(); ++c) {
      if (options_.text.contains(StrCat(c))) options.text.names.insert(names[c]);
      is_text_.push_back(options.text.contains(names[c]));
      columns_.push_back(MakeCsvColumn(path_, names[c], is_label[c], options));
    }
    return absl::OkStatus();
  }

  absl::Status Add(const Record& record) {
    const int64_t row = reader_.row();
    rows_.push_back(row);
    const size_t numbers = rows_.size() * (columns_.size() + 1) * sizeof(int64_t);
    for (size_t c = 0; c < std::min(record.size(), is_text_.size()); ++c) text_bytes_ += is_text_[c] * record[c].size();
    RETURN_IF_ERROR(CheckMemory(static_cast<int64_t>(numbers + text_bytes_), limit_));
    if (record.size() != columns_.size()) return AddRagged(record);
    for (size_t c = 0; c < record.size(); ++c) RETURN_IF_ERROR(columns_[c]->Add(row, record[c]));
    return absl::OkStatus();
  }

  absl::Status AddRagged(const Record& record) {
    const std::string why =
        StrCat("row ", reader_.row(), " has ", record.size(), " fields, row 1 has ", columns_.size());
    if (!options_.skip_bad) return Invalid(why);
    for (auto& column : columns_) column->AddUnreadable(StrCat(path_, ": ", why));
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Finish() {
    std::vector<NamedTensor> columns;
    for (auto& column : columns_) columns.push_back(column->Finish());
    return MakeMemoryDataset(std::move(columns), [path = path_, rows = std::move(rows_)](int64_t i) {
      return StrCat(path, ": row ", rows[i]);
    });
  }

  std::string path_;
  char separator_;
  CsvReader reader_;
  const DatasetOptions& options_;
  int64_t limit_;
  std::vector<std::unique_ptr<CsvColumn>> columns_;
  std::vector<bool> is_text_;  // by column
  size_t text_bytes_ = 0;
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
