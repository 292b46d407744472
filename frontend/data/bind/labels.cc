#include "frontend/data/bind/labels.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/bad_samples.h"
#include "frontend/data/load/loader.h"
#include "frontend/data/sources/csv.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/sources/file.h"
#include "frontend/data/transform/convert.h"

namespace onnxtrain {
namespace {

// Reads the values of one column as integers into buffers that are reused.
class LabelReader {
 public:
  LabelReader(const Dataset& data, int c) : data_(data), c_(c) {}

  // Calls visit(value) for every label of sample i. Errors are annotated with the row.
  template <typename Visitor>
  absl::Status Visit(int64_t i, Visitor visit) {
    const Type type = SampleType(data_, i, c_);
    raw_.resize(type.bytes());
    labels_.resize(type.elements());
    RETURN_IF_ERROR(data_.Read(i, c_, raw_));
    absl::Status status =
        ConvertValues(column().sample.dtype, raw_, DType::kInt64, reinterpret_cast<std::byte*>(labels_.data()), 1);
    for (size_t k = 0; k < labels_.size() && status.ok(); ++k) status = visit(labels_[k]);
    if (status.ok()) return status;
    return Annotate(status, StrCat(data_.Describe(i), ", column '", column().name, "': "));
  }

 private:
  const Column& column() const { return data_.columns()[c_]; }

  const Dataset& data_;
  int c_;
  std::vector<std::byte> raw_;
  std::vector<int64_t> labels_;
};

absl::Status CheckClass(int64_t label, int64_t classes, int64_t ignore_index) {
  if (label == ignore_index || (label >= 0 && label < classes)) return absl::OkStatus();
  return Invalid("label ", label, " is outside of the ", classes, " classes 0 to ", classes - 1);
}

constexpr int64_t kVoid = 255;  // marks pixels without a class in many mask data sets

std::string HintAtNegativeLabels(const Dataset& data, int column, int64_t classes, int64_t ignore_index) {
  const auto labels = std::ssize(FindDistinctLabels(data, column, ignore_index, true));
  const std::string number =
      labels > classes ? "" : "`class_map` FILE with a line for each label numbers them from 0, and ";
  const std::string outputs = labels == 0 ? "label" : StrCat("of the ", labels, " labels");
  return StrCat(" (", number, "`num_classes` auto makes an output for each ", outputs,
                "; `ignore_index` leaves one out)");
}

// Suggests how labels outside of the model's classes can be trained.
std::string HintAtClasses(const Dataset& data, int column, int64_t classes, int64_t ignore_index) {
  const auto range = ComputeLabelRange(data, column, ignore_index, true);
  if (range.ok() && range->min == 1 && range->max == classes)
    return StrCat(" (the labels begin at 1: `class_map` FILE with a line for each of 1 to ", classes,
                  " numbers them from 0)");
  if (range.ok() && range->min < 0) return HintAtNegativeLabels(data, column, classes, ignore_index);
  const Type& sample = data.columns()[column].sample;
  if (range.ok() && range->max == kVoid && sample.dtype == DType::kUInt8 && sample.rank() >= 2)
    return " (`ignore_index` 255 if it marks pixels of no class; masks of two classes hold 0 and 1, or 0 and 255)";
  return " (`num_classes` auto fits the last layer to the labels)";
}

}  // namespace

absl::Status CheckLabel(const Dataset& data, int64_t i, const LabelCheck& check) {
  for (int c : check.columns) {
    RETURN_IF_ERROR(LabelReader(data, c).Visit(
        i, [&](int64_t label) { return CheckClass(label, check.classes, check.ignore_index); }));
  }
  return absl::OkStatus();
}

absl::Status CheckSequence(const Dataset& data, int64_t i, const SequenceCheck& check) {
  int64_t labels = 0, repeats = 0, last = check.ignore_index;
  bool ended = false;
  for (int c : check.columns) {
    RETURN_IF_ERROR(LabelReader(data, c).Visit(i, [&](int64_t label) {
      if (label == check.ignore_index) {
        ended = true;
        return absl::OkStatus();
      }
      if (ended)
        return Invalid("label ", label, " follows `ignore_index` ", check.ignore_index, ", which ends a sequence");
      if (label == check.blank)
        return Invalid("label ", label, " is the blank of ctc, which is no label (`ignore_index` ", label,
                       " where it pads; `loss` ctc:blank=N where class N is the blank)");
      ++labels;
      repeats += label == std::exchange(last, label);
      return absl::OkStatus();
    }));
  }
  const int64_t steps = check.steps(i);
  if (labels + repeats <= steps) return absl::OkStatus();
  const std::string blanks = repeats > 0 ? StrCat(" with ", repeats, " blanks between equal ones") : "";
  return absl::OutOfRangeError(StrCat(data.Describe(i), ": ", labels, " labels", blanks, " need ", labels + repeats,
                                      " steps, the model gives ", steps));
}

absl::Status CheckLabels(const Dataset& data, int column, int64_t classes, int64_t ignore_index) {
  if (const std::string& problem = data.columns()[column].problem; !problem.empty()) return Invalid(problem);
  const auto& bounds = data.columns()[column].bounds;
  if (bounds.has_value() && bounds->first >= 0 && bounds->second < classes) return absl::OkStatus();
  LabelReader reader(data, column);
  for (int64_t i = 0; i < data.size(); ++i) {
    bool is_class = false;
    const absl::Status status = reader.Visit(i, [&](int64_t label) {
      is_class = true;
      const absl::Status range = CheckClass(label, classes, ignore_index);
      return range.ok() ? range : Invalid(range.message(), HintAtClasses(data, column, classes, ignore_index));
    });
    if (!status.ok() && !is_class && IsFloat(data.columns()[column].sample.dtype))
      return Invalid(status.message(), ", as the labels of a loss on ", classes,
                     " classes are; numbers are trained with `loss` mse and a `label` column for each of the output's");
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::StatusOr<LabelRange> ComputeLabelRange(const Dataset& data, int column, int64_t ignore_index, bool skip_bad) {
  if (const std::string& problem = data.columns()[column].problem; !problem.empty()) return Invalid(problem);
  if (const auto& bounds = data.columns()[column].bounds) return LabelRange{bounds->first, bounds->second};
  LabelRange range{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  LabelReader reader(data, column);
  for (int64_t i = 0; i < data.size(); ++i) {
    const absl::Status status = reader.Visit(i, [&](int64_t label) {
      if (label != ignore_index) range = {std::min(range.min, label), std::max(range.max, label)};
      return absl::OkStatus();
    });
    if (!skip_bad) RETURN_IF_ERROR(status);
  }
  if (range.min > range.max) return Invalid("column '", data.columns()[column].name, "' has no label but ignore_index");
  return range;
}

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
  constexpr size_t kMaxLabels = 1 << 20;
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
    if (found.size() > kMaxLabels) return {};
  }
  return {found.begin(), found.end()};
}

std::shared_ptr<const Dataset> WithClassIndices(std::shared_ptr<const Dataset> source, int column,
                                                const std::vector<std::string>& classes, int64_t ignore_index) {
  return std::make_shared<ClassIndices>(std::move(source), column, classes, ignore_index);
}

namespace {

// Characters that are stripped from both ends of a name. A full stop is stripped from the end only.
constexpr std::string_view kAround[] = {" ", "\t", "\r", "'", "\"", "`", "\u00a0", "‘", "’", "“", "”"};

bool StripOnce(std::string_view* text) {
  for (const std::string_view part : kAround) {
    if (text->starts_with(part)) return text->remove_prefix(part.size()), true;
    if (text->ends_with(part)) return text->remove_suffix(part.size()), true;
  }
  if (text->ends_with('.')) return text->remove_suffix(1), true;
  return false;
}

// Returns the form that is compared: lower case, without the stripped characters.
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
  constexpr size_t kShortest = 3;  // shorter names are similar to every other
  const std::string near = name.size() < kShortest ? "" : Nearest(name, classes_);
  return near.empty() ? "" : StrCat("; did you mean '", Printable(near), "'?");
}

}  // namespace onnxtrain
