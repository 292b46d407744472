// Finds the label columns of a data set, and describes and numbers their values.
#include "frontend/data/bind/binder.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "frontend/base/status.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/bind/names.h"

namespace onnxtrain {

namespace {

// Returns the element type of several label columns: float if any of them is float.
DType LabelType(const std::vector<Column>& all, const std::vector<int>& columns) {
  const auto is_float = [&](int c) { return IsFloat(all[c].sample.dtype); };
  const auto found = std::ranges::find_if(columns, is_float);
  return all[found == columns.end() ? columns[0] : *found].sample.dtype;
}

// Sets info and text of a label from its columns.
absl::Status DescribeLabel(const Dataset& data, std::string_view what, int64_t ignore_index, bool skip_bad,
                           BoundLabel* label) {
  const Column& first = data.columns()[label->columns[0]];
  if (!first.problem.empty()) return Invalid(first.problem, "; it is the label, unless `label` names another column");
  LabelInfo& info = label->info;
  info.present = true;
  info.sample = {LabelType(data.columns(), label->columns), JoinedShape(data.columns(), label->columns)};
  if (!IsFloat(info.sample.dtype)) {
    bool begun = false;
    for (int c : label->columns) {
      ASSIGN_OR_RETURN(const LabelRange range, ComputeLabelRange(data, c, ignore_index, skip_bad));
      info.min_value = begun ? std::min(info.min_value, range.min) : range.min;
      info.max_value = begun ? std::max(info.max_value, range.max) : range.max;
      begun = true;
    }
  }
  label->text = StrCat(what, " ← column '", first.name, "' ", ToString(info.sample));
  if (!first.classes.empty()) {
    StrAppend(&label->text, ", ", first.classes.size(),
              " classes: ", JoinFirst(first.classes, [](const std::string& s) { return s; }));
  } else if (!IsFloat(info.sample.dtype)) {
    StrAppend(&label->text, ", values ", info.min_value, " to ", info.max_value);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int>> Binder::ResolveLabel(const std::vector<std::string>& names,
                                                      std::string_view flag) const {
  std::vector<int> columns;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const int c, Resolve(name, flag));
    if (!columns_[c].problem.empty() && spec_.read_labels) return Invalid(flag, ": ", columns_[c].problem);
    columns.push_back(c);
  }
  return columns;
}

// Returns the label columns of all losses.
std::set<int> Binder::LabelColumns() const {
  std::set<int> used(out_.label.columns.begin(), out_.label.columns.end());
  for (const auto& [key, label] : out_.own_labels) used.insert(label.columns.begin(), label.columns.end());
  return used;
}

absl::Status Binder::FindLabel() {
  if (!out_.label.columns.empty()) return absl::OkStatus();
  std::set<std::string> input_names;
  for (const auto& input : inputs_) input_names.insert(input.name);
  for (const auto& [input, columns] : bound_) {
    for (const int c : columns) {
      if (!spec_.inputs.contains(input)) input_names.insert(columns_[c].name);
    }
  }
  std::vector<Column> candidates = columns_;
  const std::set<int> own = LabelColumns();
  // A column named like a model input feeds that input, and a column that a loss names is the label of that loss.
  for (Column& c : candidates) {
    if (input_names.contains(c.name) || c.name == spec_.leave_out ||
        own.contains(static_cast<int>(&c - candidates.data())))
      c.name.clear();
  }
  ASSIGN_OR_RETURN(const std::optional<int> named, LabelByName(candidates, spec_.read_labels));
  if (named.has_value()) {
    out_.label.columns = {*named};
  } else if (IsTable() && spec_.want_label) {
    out_.label.columns = {LastColumn()};
    RETURN_IF_ERROR(CheckDefaultLabel(out_.label.columns[0]));
    label_is_last_ = true;
  }
  return absl::OkStatus();
}

// Fails if the default label, the last column of a table, seems to divide the data.
absl::Status Binder::CheckDefaultLabel(int c) const {
  const Column& label = columns_[c];
  if (NamesSplit(label.name))
    return Invalid("the label would be the last column, '", label.name,
                   "', which seems to divide the data; choose with `label` COLUMN (and `eval_split` ", label.name, ")");
  return absl::OkStatus();
}

absl::Status Binder::AddLabel(std::string_view what, BoundLabel* label) {
  if (label->columns.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(DescribeLabel(*out_.dataset, what, spec_.ignore_index, spec_.skip_bad, label));
  out_.notes.push_back(label->text);
  return absl::OkStatus();
}

// Replaces labels by their indices in the model's classes if those are integers other than 0 … n-1.
absl::Status Binder::NumberClasses() {
  if (spec_.classes.empty() || out_.label.columns.size() != 1 || AreIndices(spec_.classes)) return absl::OkStatus();
  const int c = out_.label.columns[0];
  const Column& label = columns_[c];
  const auto quoted = [](const std::string& name) { return StrCat("'", name, "'"); };
  if (label.classes == spec_.classes) return absl::OkStatus();
  const bool numbers = !IntegerClasses(spec_.classes).empty();
  if (numbers && !label.classes.empty())
    return Invalid("the label column '", label.name, "' holds names (", JoinFirst(label.classes, quoted),
                   "), but the model's classes are ", JoinFirst(spec_.classes, quoted));
  if (!numbers || !label.problem.empty() || (IsFloat(label.sample.dtype) && label.sample.elements() != 1))
    return absl::OkStatus();
  out_.dataset = WithClassIndices(out_.dataset, c, spec_.classes, spec_.ignore_index);
  columns_ = out_.dataset->columns();
  return absl::OkStatus();
}

absl::StatusOr<MaskEncoding> Binder::GetMaskEncoding(int c) const {
  if (!spec_.mask_encodings.has_value()) return FindMaskEncoding(*out_.dataset, c, spec_.skip_bad);
  const auto trained = spec_.mask_encodings->find(columns_[c].name);
  return trained == spec_.mask_encodings->end() ? MaskEncoding::kClasses : trained->second;
}

// Maps masks with the values 0 and 255 to classes, unless a model input reads the column as well.
absl::Status Binder::MapMasksToClasses() {
  if (spec_.ignore_index == 255) return absl::OkStatus();
  std::set<int> fed;
  for (const auto& [input, columns] : bound_) fed.insert(columns.begin(), columns.end());
  std::map<int, MaskEncoding> encodings;
  for (const std::string& key : spec_.class_labels) {
    const BoundLabel* label = FindBoundLabel(out_, key);
    const int c = label == nullptr || label->columns.size() != 1 ? -1 : label->columns[0];
    if (c < 0 || fed.contains(c) || !columns_[c].classes.empty()) continue;
    ASSIGN_OR_RETURN(const MaskEncoding encoding, GetMaskEncoding(c));
    if (encoding == MaskEncoding::kClasses || !encodings.emplace(c, encoding).second) continue;
    out_.mask_encodings[columns_[c].name] = encoding;
    out_.notes.push_back(StrCat("labels '", columns_[c].name,
                                encoding == MaskEncoding::kGreys ? "' of greys are taken for 0 and 1 (from 128 on)"
                                                                 : "' of 0 and 255 are taken for 0 and 1"));
  }
  out_.dataset = WithMaskClasses(out_.dataset, encodings);
  for (const auto& [c, encoding] : encodings) columns_[c] = out_.dataset->columns()[c];
  return absl::OkStatus();
}

// Adds a note if the text order of class names differs from their numeric order: '10' comes before '2'.
void Binder::NoteTextOrder() {
  const std::vector<int64_t> numbers = IntegerClasses(out_.classes);
  const auto descent = std::ranges::is_sorted_until(numbers);
  if (!out_.classes_are_sorted || descent == numbers.end()) return;
  const auto place = descent - numbers.begin() - 1;
  out_.notes.push_back(StrCat("classes are numbered in the order of their names as text: '", out_.classes[place],
                              "' is class ", place, ", before '", out_.classes[place + 1],
                              "' (`class_map` FILE gives another order)"));
}

// Warns about pairs like "<=50K" and "<=50K.", which usually are the same class.
void Binder::WarnOfSpellings() {
  if (!out_.classes_are_sorted) return;
  const auto [one, other] = FindTwoSpellings(out_.classes);
  if (other.empty()) return;
  out_.warnings.push_back(StrCat("the classes '", Printable(one), "' and '", Printable(other),
                                 "' differ in case, blanks, quotes or full stops alone, and are two of the ",
                                 out_.classes.size(), " classes; if they are one, spell them alike in the data"));
}

absl::Status Binder::DescribeLabels() {
  if (!out_.label.columns.empty()) {
    out_.classes = columns_[out_.label.columns[0]].classes;
    out_.classes_are_sorted = !out_.classes.empty() && (spec_.classes.empty() || AreIndices(spec_.classes));
    if (out_.classes.empty() && !AreIndices(spec_.classes)) out_.classes = spec_.classes;
  }
  NoteTextOrder();
  WarnOfSpellings();
  RETURN_IF_ERROR(MapMasksToClasses());
  RETURN_IF_ERROR(AddLabel("label", &out_.label));
  for (auto& [key, label] : out_.own_labels) RETURN_IF_ERROR(AddLabel("label of its own", &label));
  return absl::OkStatus();
}

// Warns if the default label, the last column, looks less like a label than the first column: the first holds integers
// or classes, the last has no classes and is float or constant.
void Binder::WarnOfDefaultLabel() {
  const Column &first = columns_.front(), &last = columns_[LastColumn()];
  const LabelInfo& label = out_.label.info;
  if (!label_is_last_ || IsFloat(first.sample.dtype) || !first.problem.empty() || !last.classes.empty()) return;
  if (!IsFloat(label.sample.dtype) && label.min_value != label.max_value) return;
  out_.warnings.push_back(StrCat("the label is the last column, '", last.name, "', whose values are ",
                                 IsFloat(label.sample.dtype) ? "no integers" : StrCat("all ", label.min_value),
                                 "; if it is the first one, add `label` ", first.name));
}

absl::StatusOr<std::optional<int>> LabelByName(const std::vector<Column>& columns, bool want_label) {
  static const std::set<std::string> kNames = {"label", "labels",  "target", "targets", "y",
                                               "class", "y_train", "y_test", "cls"};  // "cls" is WebDataset's
  std::optional<int> found;
  for (int c = 0; c < static_cast<int>(columns.size()); ++c) {
    if (!kNames.contains(absl::AsciiStrToLower(columns[c].name))) continue;
    if (found.has_value()) {
      if (!want_label) return std::nullopt;
      return Invalid("both '", columns[*found].name, "' and '", columns[c].name,
                     "' could be the label; choose with `label`");
    }
    found = c;
  }
  return found;
}

absl::Status NumberLabels(const std::vector<int64_t>& numbers, int64_t ignore_index, bool skip_bad, BoundData* data) {
  data->classes.clear();
  for (const int64_t number : numbers) data->classes.push_back(StrCat(number));
  data->classes_are_sorted = true;
  data->dataset = WithClassIndices(data->dataset, data->label.columns[0], data->classes, ignore_index);
  const std::string before = data->label.text;
  RETURN_IF_ERROR(DescribeLabel(*data->dataset, "label", ignore_index, skip_bad, &data->label));
  std::ranges::replace(data->notes, before, data->label.text);
  return absl::OkStatus();
}

const BoundLabel* FindBoundLabel(const BoundData& data, const std::string& key) {
  const auto own = data.own_labels.find(key);
  const BoundLabel* label = key.empty() ? &data.label : own != data.own_labels.end() ? &own->second : nullptr;
  return label != nullptr && !label->columns.empty() ? label : nullptr;
}

}  // namespace onnxtrain
