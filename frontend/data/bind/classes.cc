#include "frontend/data/bind/classes.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <unordered_map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/data/sources/csv_reader.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxClasses = 1 << 24;

struct Row {
  std::string name;
  int64_t index, row;
};

absl::StatusOr<std::vector<Row>> ReadRows(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  CsvReader reader(file.reader(), ',');
  std::vector<Row> rows;
  std::vector<std::string> fields;
  size_t width = 0;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader.Next(&fields));
    if (!more) return rows;
    if (width == 0) width = fields.size();
    if (fields.size() != width || width > 2)
      return Invalid("row ", reader.row(), ": expected a name, or name,index, as in every row");
    int64_t index = static_cast<int64_t>(rows.size());
    if (width == 2) {
      const auto number = ParseInt(fields[1]);
      if (!number.ok() || *number < 0 || *number >= kMaxClasses)
        return Invalid("row ", reader.row(), ": '", Printable(fields[1]), "' is no index of a class");
      index = *number;
    }
    rows.push_back({fields[0], index, reader.row()});
  }
}

absl::StatusOr<std::vector<std::string>> OrderNames(const std::vector<Row>& rows) {
  if (rows.empty()) return Invalid("there are no classes");
  std::vector<std::string> names(rows.size());
  std::vector<bool> seen(rows.size(), false);
  std::set<std::string> distinct;
  for (const Row& row : rows) {
    if (row.index >= static_cast<int64_t>(rows.size()) || seen[row.index])
      return Invalid("row ", row.row, ": index ", row.index,
                     row.index < static_cast<int64_t>(rows.size())
                         ? " occurs twice"
                         : StrCat(" is not below the ", rows.size(), " classes"));
    if (row.name.empty() || !distinct.insert(row.name).second)
      return Invalid("row ", row.row, ": the name '", Printable(row.name),
                     row.name.empty() ? "' is empty" : "' occurs twice");
    seen[row.index] = true;
    names[row.index] = row.name;
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadClassMap(const std::string& path) {
  RETURN_IF_ERROR(RegularFileSize(path).status());
  const auto rows = ReadRows(path);
  if (!rows.ok()) return Annotate(rows.status(), StrCat(path, ": "));
  auto names = OrderNames(*rows);
  if (!names.ok()) return Annotate(names.status(), StrCat(path, ": "));
  return names;
}

namespace {

class ClassIndices : public DatasetView {
 public:
  ClassIndices(std::shared_ptr<const Dataset> source, int column, const std::vector<std::string>& classes,
               int64_t ignore_index)
      : DatasetView(std::move(source)), column_(column), columns_(source_->columns()) {
    columns_[column].sample.dtype = DType::kInt64;
    columns_[column].classes = classes;
    columns_[column].bounds.reset();
    for (const int64_t number : IntegerClasses(classes)) index_.emplace(number, index_.size());
    index_.emplace(ignore_index, ignore_index);
  }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::Status Read(int64_t i, int c, const ReadPass& pass, std::span<std::byte> out) const override {
    if (c != column_) return source_->Read(i, c, pass, out);
    const Type& from = source_->columns()[c].sample;
    std::vector<std::byte> raw(from.bytes());
    RETURN_IF_ERROR(source_->Read(i, c, pass, raw));
    RETURN_IF_ERROR(Annotate(ConvertValues(from.dtype, raw, DType::kInt64, out.data(), 1), Place(i)));
    auto* labels = reinterpret_cast<int64_t*>(out.data());
    for (int64_t k = 0; k < from.elements(); ++k) {
      const auto found = index_.find(labels[k]);
      if (found == index_.end())
        return Invalid(Place(i), "label ", labels[k], " is not among the model's classes ",
                       absl::StrJoin(columns_[c].classes, ", "));
      labels[k] = found->second;
    }
    return absl::OkStatus();
  }

 private:
  std::string Place(int64_t i) const { return StrCat(Describe(i), ", column '", columns_[column_].name, "': "); }

  int column_;
  std::vector<Column> columns_;
  std::unordered_map<int64_t, int64_t> index_;
};

}  // namespace

std::vector<int64_t> IntegerClasses(const std::vector<std::string>& classes) {
  std::vector<int64_t> numbers;
  for (const std::string& name : classes) {
    const auto number = ParseInt(name);
    if (!number.ok()) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

bool AreIndices(const std::vector<std::string>& classes) {
  const std::vector<int64_t> numbers = IntegerClasses(classes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != static_cast<int64_t>(i)) return false;
  }
  return !numbers.empty();
}

std::vector<int64_t> FindDistinctLabels(const Dataset& data, int column, int64_t ignore_index, bool skip_bad) {
  constexpr size_t kMostLabels = 1 << 20;
  const Type& type = data.columns()[column].sample;
  if (type.elements() != 1) return {};
  std::set<int64_t> found;
  std::vector<std::byte> raw(type.bytes());
  for (int64_t i = 0; i < data.size(); ++i) {
    int64_t label = 0;
    absl::Status read = data.Read(i, column, raw);
    if (read.ok()) read = ConvertValues(type.dtype, raw, DType::kInt64, reinterpret_cast<std::byte*>(&label), 1);
    if (!read.ok() && !skip_bad) return {};
    if (read.ok() && label != ignore_index) found.insert(label);
    if (found.size() > kMostLabels) return {};
  }
  return {found.begin(), found.end()};
}

std::shared_ptr<const Dataset> WithClassIndices(std::shared_ptr<const Dataset> source, int column,
                                                const std::vector<std::string>& classes, int64_t ignore_index) {
  return std::make_shared<ClassIndices>(std::move(source), column, classes, ignore_index);
}

namespace {

// Marks that are stripped from both ends of a name. A full stop is stripped from its end alone.
constexpr std::string_view kAround[] = {" ", "\t", "\r", "'", "\"", "`", "\u00a0", "‘", "’", "“", "”"};

bool StripOnce(std::string_view* text) {
  for (const std::string_view part : kAround) {
    if (text->starts_with(part)) return text->remove_prefix(part.size()), true;
    if (text->ends_with(part)) return text->remove_suffix(part.size()), true;
  }
  if (text->ends_with('.')) return text->remove_suffix(1), true;
  return false;
}

// The part of a name by which spellings agree.
std::string CommonForm(std::string_view name) {
  while (StripOnce(&name)) continue;
  return absl::AsciiStrToLower(ToAbsl(name));
}

}  // namespace

ClassSpellings::ClassSpellings(std::vector<std::string> classes) : classes_(std::move(classes)) {
  for (const std::string& name : classes_) {
    const auto [it, added] = by_form_.emplace(CommonForm(name), name);
    if (!added) it->second.clear();
  }
}

std::string ClassSpellings::Find(std::string_view name) const {
  const std::string form = CommonForm(name);
  const auto it = by_form_.find(form);
  return form.empty() || it == by_form_.end() ? "" : it->second;
}

std::pair<std::string, std::string> FindTwoSpellings(const std::vector<std::string>& names) {
  std::unordered_map<std::string, std::string> by_form;
  for (const std::string& name : names) {
    const auto [it, added] = by_form.emplace(CommonForm(name), name);
    if (!added) return {it->second, name};
  }
  return {};
}

std::string ClassSpellings::Suggest(std::string_view name) const {
  constexpr size_t kShortest = 3;  // any two shorter names are near
  const std::string near = name.size() < kShortest ? "" : Nearest(name, classes_);
  return near.empty() ? "" : StrCat("; did you mean '", Printable(near), "'?");
}

}  // namespace onnxtrain
