#include "frontend/data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <unordered_map>

#include "absl/strings/str_split.h"
#include "frontend/base/status.h"
#include "frontend/data/csv_reader.h"
#include "frontend/data/memory_dataset.h"

namespace onnxtrain {
namespace {

using Record = std::vector<std::string>;

std::string_view Trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

template <typename T>
bool ParseNumber(std::string_view s, T* value) {
  if (s.size() > 1 && s[0] == '+' && s[1] != '-') s.remove_prefix(1);
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), *value);
  return error == std::errc() && end == s.data() + s.size();
}

// NaN denotes a missing value, not a number.
bool IsNumber(std::string_view s) {
  double value;
  return ParseNumber(Trim(s), &value) && !std::isnan(value);
}

bool IsMissingValue(std::string_view s) {
  std::string lower(Trim(s));
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  constexpr std::string_view kNames[] = {"", "na", "n/a", "nan", "-nan", "null", "none", "?"};
  return std::find(std::begin(kNames), std::end(kNames), lower) != std::end(kNames);
}

std::string QuoteValue(std::string_view s) {
  size_t cut = std::min<size_t>(s.size(), 40);
  while (cut < s.size() && cut > 0 && (s[cut] & 0xC0) == 0x80) --cut;  // do not split a UTF-8 sequence
  return StrCat("'", s.substr(0, cut), cut < s.size() ? "…'" : "'");
}

// The numbers of a column: integers until one is not, then floats.
class Numbers {
 public:
  // Returns false if the text is not a number.
  bool Add(std::string_view text) {
    text = Trim(text);
    int64_t i;
    double d;
    if (integral_ && ParseNumber(text, &i)) {
      ints_.push_back(i);
      return true;
    }
    if (!ParseNumber(text, &d) || std::isnan(d)) return false;
    if (integral_) floats_.assign(ints_.begin(), ints_.end());
    integral_ = false;
    floats_.push_back(d);
    return true;
  }
  HostTensor Tensor() const {
    if (integral_) return HostTensor::FromInts(ints_);
    return HostTensor::FromDoubles({DType::kFloat64, {static_cast<int64_t>(floats_.size())}}, floats_);
  }

 private:
  bool integral_ = true;
  std::vector<int64_t> ints_;
  std::vector<double> floats_;
};

// The location of a value, for messages.
struct Place {
  std::string path, column;
  std::string InFile(int64_t row) const { return StrCat("row ", row, ", column '", column, "': "); }
  std::string At(int64_t row) const { return StrCat(path, ": ", InFile(row)); }
};

class Builder {
 public:
  virtual ~Builder() = default;
  virtual absl::Status Add(int64_t row, const std::string& field) = 0;
  virtual NamedTensor Finish(int64_t rows) = 0;
};

NamedTensor MakeUnusableColumn(const std::string& name, int64_t rows, std::string problem) {
  return {name, HostTensor({DType::kFloat64, {rows}}), {}, std::move(problem)};
}

// A column that is not the label: numbers, or unusable.
class Feature : public Builder {
 public:
  explicit Feature(Place place) : place_(std::move(place)) {}

  absl::Status Add(int64_t row, const std::string& field) override {
    if (!problem_.empty() || numbers_.Add(field)) return absl::OkStatus();
    problem_ =
        StrCat(place_.At(row), IsMissingValue(field) ? "missing value" : StrCat(QuoteValue(field), " is not a number"));
    numbers_ = {};
    return absl::OkStatus();
  }
  NamedTensor Finish(int64_t rows) override {
    if (!problem_.empty()) return MakeUnusableColumn(place_.column, rows, std::move(problem_));
    return {place_.column, numbers_.Tensor()};
  }

 private:
  Place place_;
  Numbers numbers_;
  std::string problem_;
};

// A label column: numbers, or names that become indices into the sorted or given classes.
class Label : public Builder {
 public:
  Label(Place place, std::vector<std::string> classes) : place_(std::move(place)), fixed_(!classes.empty()) {
    for (const std::string& name : classes) FindClassId(name);
  }

  absl::Status Add(int64_t row, const std::string& field) override {
    if (fixed_ && !field.empty() && !ids_of_.contains(field)) {
      return Invalid(place_.InFile(row), QuoteValue(field), " is not among the ", names_.size(), " classes");
    }
    RememberFirst(&empty_row_, field.empty(), row);
    RememberFirst(&missing_row_, IsMissingValue(field), row);
    ids_.push_back(FindClassId(field));
    return absl::OkStatus();
  }

  NamedTensor Finish(int64_t rows) override {
    const bool numbers = !fixed_ && std::all_of(names_.begin(), names_.end(), [](const std::string& name) {
      return IsNumber(name) || IsMissingValue(name);
    });
    // "None" is a class in a column of names and a missing value in one of numbers.
    const int64_t missing = numbers ? missing_row_ : empty_row_;
    if (missing > 0) return MakeUnusableColumn(place_.column, rows, StrCat(place_.At(missing), "missing value"));
    return numbers ? MakeNumbers() : MakeClassIndices();
  }

 private:
  static void RememberFirst(int64_t* first, bool condition, int64_t row) {
    if (condition && *first == 0) *first = row;
  }
  int64_t FindClassId(const std::string& name) {
    const auto [it, added] = ids_of_.try_emplace(name, static_cast<int64_t>(names_.size()));
    if (added) names_.push_back(name);
    return it->second;
  }
  NamedTensor MakeNumbers() const {
    Numbers numbers;
    for (int64_t id : ids_) numbers.Add(names_[id]);
    return {place_.column, numbers.Tensor()};
  }
  NamedTensor MakeClassIndices() const {
    std::vector<int64_t> order(names_.size()), place(names_.size()), out;
    std::iota(order.begin(), order.end(), int64_t{0});
    if (!fixed_) std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return names_[a] < names_[b]; });
    std::vector<std::string> classes;
    for (size_t i = 0; i < order.size(); ++i) {
      place[order[i]] = static_cast<int64_t>(i);
      classes.push_back(names_[order[i]]);
    }
    for (int64_t id : ids_) out.push_back(place[id]);
    return {place_.column, HostTensor::FromInts(out), std::move(classes)};
  }

  Place place_;
  bool fixed_;
  int64_t empty_row_ = 0, missing_row_ = 0;
  std::vector<int64_t> ids_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, int64_t> ids_of_;
};

bool LooksLikeHeader(const Record& record) {
  const auto is_name = [](const std::string& field) { return !Trim(field).empty() && !IsNumber(field); };
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
      return std::all_of(parts.begin(), parts.end(), IsNumber);
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
    names.emplace_back(header ? Trim(first[c]) : std::string_view());
    if (names.back().empty()) names.back() = StrCat(header ? "#" : "", c);
    if (!seen.insert(names.back()).second) return Invalid("row 1: two columns are named '", names.back(), "'");
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
    if (it == names.end() && !ParseNumber(name, &index)) index = names.size();
    if (index >= names.size()) {
      return absl::NotFoundError(StrCat("there is no column '", name, "' among ", names.size(), " columns from '",
                                        names[0], "' to '", names.back(), "'"));
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
    RETURN_IF_ERROR(MakeBuilders(header, record));
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
  absl::Status MakeBuilders(bool header, const Record& first) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, MakeColumnNames(header, first));
    ASSIGN_OR_RETURN(const std::vector<bool> is_label, FindLabelColumns(names, options_.label));
    for (size_t c = 0; c < names.size(); ++c) {
      Place place{path_, names[c]};
      if (is_label[c]) {
        builders_.push_back(std::make_unique<Label>(std::move(place), options_.class_names));
      } else {
        builders_.push_back(std::make_unique<Feature>(std::move(place)));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Add(const Record& record) {
    if (record.size() != builders_.size()) {
      return Invalid("row ", reader_.row(), " has ", record.size(), " fields, row 1 has ", builders_.size());
    }
    rows_.push_back(reader_.row());
    RETURN_IF_ERROR(CheckMemory(static_cast<int64_t>(rows_.size() * (builders_.size() + 1) * sizeof(int64_t)), limit_));
    for (size_t c = 0; c < record.size(); ++c) RETURN_IF_ERROR(builders_[c]->Add(reader_.row(), record[c]));
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const Dataset>> Finish() {
    std::vector<NamedTensor> columns;
    for (auto& builder : builders_) columns.push_back(builder->Finish(static_cast<int64_t>(rows_.size())));
    return MakeMemoryDataset(std::move(columns), [path = path_, rows = std::move(rows_)](int64_t i) {
      return StrCat(path, ": row ", rows[i]);
    });
  }

  std::string path_;
  char separator_;
  CsvReader reader_;
  const DatasetOptions& options_;
  int64_t limit_;
  std::vector<std::unique_ptr<Builder>> builders_;
  std::vector<int64_t> rows_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> OpenCsv(const std::string& path, char separator,
                                                       const DatasetOptions& options) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  auto dataset = Table(path, file.reader(), separator, options).Load();
  if (!dataset.ok()) return Annotate(dataset.status(), StrCat(path, ": "));
  return dataset;
}

}  // namespace onnxtrain
