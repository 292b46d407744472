#include "frontend/data/bind/binding.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/channel_axis.h"
#include "frontend/data/bind/classes.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/text/token_blocks.h"

namespace onnxtrain {
namespace {

std::string DimsText(const std::vector<int64_t>& dims, const std::vector<std::string>& names) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    const std::string name = i < names.size() && !names[i].empty() ? names[i] : "?";
    StrAppend(&text, i == 0 ? "" : ",", dims[i] >= 0 ? StrCat(dims[i]) : name);
  }
  return text + "]";
}

std::string InputText(const ModelInput& input) {
  return StrCat("'", input.name, "' ", TypeText(input),
                input.has_shape ? DimsText(input.dims, input.dim_names) : "[…]");
}

std::string ColumnText(const Column& c) {
  return StrCat("'", c.name, "' ", c.problem.empty() ? ToString(c.sample) : "(unusable)");
}

template <typename T, typename Text>
std::string Listed(const std::vector<T>& items, Text text) {
  std::string out;
  constexpr size_t kMost = 12;
  for (size_t i = 0; i < items.size() && i < kMost; ++i) StrAppend(&out, i == 0 ? "" : ", ", text(items[i]));
  if (items.size() > kMost) StrAppend(&out, ", … (", items.size(), " in all)");
  return out.empty() ? "none" : out;
}

Shape WithoutOnes(const Shape& shape) {
  Shape out;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(out), [](int64_t d) { return d != 1; });
  return out;
}

bool Compatible(const Shape& data, const Shape& fixed) {
  return std::equal(data.begin(), data.end(), fixed.begin(), fixed.end(),
                    [](int64_t d, int64_t f) { return f < 0 || d == f; });
}

// Returns the shapes of a sample with axes of extent 1 added or removed.
std::vector<Shape> Views(const Shape& data, size_t rank) {
  std::vector<Shape> views;
  if (data.size() == rank) views.push_back(data);
  if (data.size() + 1 == rank) {
    for (size_t i = 0; i < rank; ++i) {
      Shape view = data;
      view.insert(view.begin() + static_cast<std::ptrdiff_t>(i), 1);
      views.push_back(std::move(view));
    }
  }
  if (const Shape squeezed = WithoutOnes(data); squeezed.size() == rank) views.push_back(squeezed);
  return views;
}

// Whether samples of an input are rows of numbers of any length, as pictures are to a model of dense layers.
bool TakesRows(const ModelInput& input, const Shape& fixed) { return IsFloat(input.dtype) && fixed == Shape{-1}; }

// The shape of a sample of several columns of equal shapes.
Shape JoinedShape(const std::vector<Column>& all, const std::vector<int>& columns) {
  Shape shape = all[columns[0]].sample.shape;
  if (columns.size() > 1) shape.push_back(static_cast<int64_t>(columns.size()));
  return shape;
}

// The type of targets of which some are whole numbers is that of the others.
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
              " classes: ", Listed(first.classes, [](const std::string& s) { return s; }));
  } else if (!IsFloat(info.sample.dtype)) {
    StrAppend(&label->text, ", values ", info.min_value, " to ", info.max_value);
  }
  return absl::OkStatus();
}

// What to do where one row makes several columns unusable: a title above the table, or totals below it.
std::string AdviseOddRow(const std::vector<Column>& columns) {
  std::set<std::string> rows;
  int unusable = 0;
  for (const Column& column : columns) {
    const size_t begin = column.problem.find(": row ");
    if (begin == std::string::npos) continue;
    ++unusable;
    rows.insert(column.problem.substr(begin + 2, column.problem.find(',', begin) - begin - 2));
  }
  if (unusable < 2 || rows.size() != 1) return "";
  return StrCat("; if ", *rows.begin(), " alone is so: remove it, or `on_bad_sample` skip leaves it out");
}

class Binder {
 public:
  Binder(const std::vector<ModelInput>& inputs, std::shared_ptr<const Dataset> dataset, const BindSpec& spec)
      : inputs_(inputs), spec_(spec), columns_(dataset->columns()) {
    out_.dataset = std::move(dataset);
  }

  absl::StatusOr<BoundData> Run();

 private:
  absl::StatusOr<int> Resolve(const std::string& name, std::string_view flag) const;
  absl::Status BindExplicit();
  absl::Status FindLabel();
  void BindByName();
  void BindByStem();
  absl::Status BindTokens();
  void BindPairMasks();
  absl::Status BindRest();
  absl::Status BindOnlyInput(const ModelInput& input);
  std::pair<std::vector<int>, std::string> WithoutRowNames(const std::vector<int>& columns) const;
  std::string TableHint(const ModelInput& input) const;
  absl::Status CheckDefaultLabel(int c) const;
  void WarnOfDefaultLabel();
  absl::Status BindDefaults();
  bool FeedsImage(const std::vector<int>& columns) const;
  bool HoldsPixels(const std::string& input, int c) const;
  absl::Status PlaceChannels();
  absl::Status AddFeeds();
  absl::StatusOr<FeedSpec> MakeFeed(const ModelInput& input, const std::vector<int>& columns);
  absl::Status AddLabel(std::string_view what, BoundLabel* label);
  void NoteTextOrder();
  void WarnOfSpellings();
  absl::Status DescribeLabels();
  absl::Status NumberClasses();
  absl::Status ReadDrawnMasks();
  absl::StatusOr<MaskEncoding> GetMaskInk(int c) const;
  std::set<int> LabelColumns() const;
  absl::StatusOr<std::vector<int>> ResolveLabel(const std::vector<std::string>& names, std::string_view flag) const;
  absl::StatusOr<Shape> FixedDims(const ModelInput& input) const;
  Shape DataShape(const std::vector<int>& columns) const;
  std::vector<const ModelInput*> Unbound() const;
  std::vector<int> FreeColumns() const;
  bool IsLeftOut(int c) const { return !spec_.leave_out.empty() && columns_[c].name == spec_.leave_out; }
  // Is it text or tokens, which feed nothing but the inputs of a text model?
  bool IsText(int c) const { return columns_[c].text || columns_[c].variable; }
  int LastColumn() const;
  bool IsTable() const;
  std::string Choices() const;

  const std::vector<ModelInput>& inputs_;
  const BindSpec& spec_;
  std::vector<Column> columns_;  // of the data set, without constants
  std::map<std::string, std::vector<int>> bound_;
  std::vector<ConstantColumn> constants_;
  bool label_is_last_ = false;  // nothing but its place says that it is the label
  BoundData out_;
};

absl::StatusOr<int> Binder::Resolve(const std::string& name, std::string_view flag) const {
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].name == name) return static_cast<int>(c);
  }
  const auto index = ParseInt(name);
  if (index.ok() && *index >= 0 && *index < static_cast<int64_t>(columns_.size())) return static_cast<int>(*index);
  return Invalid(flag, ": there is no column '", name, "'; there are ", Listed(columns_, ColumnText));
}

absl::Status Binder::BindExplicit() {
  for (const auto& [input, names] : spec_.inputs) {
    const bool known = std::ranges::find(inputs_, input, &ModelInput::name) != inputs_.end();
    if (!known)
      return Invalid("`input` ", input, "=…: the model has no such input; it has ", Listed(inputs_, InputText));
    for (const std::string& name : names) {
      ASSIGN_OR_RETURN(const int c, Resolve(name, StrCat("`input` ", input)));
      if (!columns_[c].problem.empty()) return Invalid("`input` ", input, ": ", columns_[c].problem);
      bound_[input].push_back(c);
    }
  }
  ASSIGN_OR_RETURN(out_.label.columns, ResolveLabel(spec_.label, "`label`"));
  for (const auto& [key, names] : spec_.own_labels) {
    ASSIGN_OR_RETURN(out_.own_labels[key].columns, ResolveLabel(names, "`loss` …label"));
  }
  return absl::OkStatus();
}

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

// Label columns of every loss.
std::set<int> Binder::LabelColumns() const {
  std::set<int> used(out_.label.columns.begin(), out_.label.columns.end());
  for (const auto& [key, label] : out_.own_labels) used.insert(label.columns.begin(), label.columns.end());
  return used;
}

// Is every column a scalar, as in CSV?
bool Binder::IsTable() const {
  return columns_.size() > 1 && std::all_of(columns_.begin(), columns_.end(),
                                            [](const Column& c) { return c.variable || c.sample.shape.empty(); });
}

// The last column of a table that may be its label.
int Binder::LastColumn() const {
  int last = static_cast<int>(columns_.size()) - 1;
  while (last > 0 && (IsText(last) || IsLeftOut(last))) --last;
  return last;
}

std::vector<const ModelInput*> Binder::Unbound() const {
  std::vector<const ModelInput*> out;
  for (const auto& input : inputs_) {
    if (!bound_.contains(input.name)) out.push_back(&input);
  }
  return out;
}

std::vector<int> Binder::FreeColumns() const {
  std::set<int> used = LabelColumns();
  for (const auto& [input, columns] : bound_) used.insert(columns.begin(), columns.end());
  std::vector<int> out;
  for (int c = 0; c < static_cast<int>(columns_.size()); ++c) {
    if (!used.contains(c) && !IsLeftOut(c) && !IsText(c)) out.push_back(c);
  }
  return out;
}

void Binder::BindByName() {
  const std::set<int> labels = LabelColumns();
  for (const auto* input : Unbound()) {
    for (int c = 0; c < static_cast<int>(columns_.size()); ++c) {
      if (columns_[c].name == input->name && columns_[c].problem.empty() && !labels.contains(c))
        bound_[input->name] = {c};
    }
  }
  if (Unbound().size() > 1) BindByStem();
}

// Binds inputs to columns with the name that the program gave them, where exporters have added to it.
void Binder::BindByStem() {
  std::map<std::string_view, std::vector<const ModelInput*>> by_stem;
  for (const auto* input : Unbound()) by_stem[StemOf(input->name)].push_back(input);
  for (const int c : FreeColumns()) {
    const auto found = by_stem.find(columns_[c].name);
    if (found != by_stem.end() && found->second.size() == 1 && columns_[c].problem.empty())
      bound_[found->second[0]->name].push_back(c);
  }
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
  // A column with the name of a model input belongs to that input, and one that a loss names to that loss.
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

std::string Binder::Choices() const {
  std::vector<Column> left;
  for (int c : FreeColumns()) left.push_back(columns_[c]);
  std::vector<ModelInput> open;
  for (const auto* input : Unbound()) open.push_back(*input);
  return StrCat("the model's ", open.size() == 1 ? "input " : "inputs ", Listed(open, InputText), " and the columns ",
                Listed(left, ColumnText));
}

Shape Binder::DataShape(const std::vector<int>& columns) const { return JoinedShape(columns_, columns); }

// A column by whose name it is neither feature nor label.
bool NamesSplit(const Column& c) {
  static const std::set<std::string> kNames = {"split", "set", "subset", "partition", "fold"};
  return kNames.contains(absl::AsciiStrToLower(c.name));
}
bool NamesRow(const Column& c) {
  static const std::set<std::string> kNames = {"id", "index", "row", "rownames", "unnamed: 0", "#0", "idx"};
  return kNames.contains(absl::AsciiStrToLower(c.name));
}

// Without the columns that by their names hold no features, and these as a text.
std::pair<std::vector<int>, std::string> Binder::WithoutRowNames(const std::vector<int>& columns) const {
  std::vector<int> features;
  std::string others;
  for (const int c : columns) {
    const bool split = NamesSplit(columns_[c]);
    if (!split && !NamesRow(columns_[c])) {
      features.push_back(c);
    } else {
      StrAppend(&others, others.empty() ? "" : "; ", "column '", columns_[c].name, "', which seems to ",
                split ? "divide the data" : "number the rows");
    }
  }
  return {features, others};
}

// What may be wrong where the columns of a table do not fit an input.
std::string Binder::TableHint(const ModelInput& input) const {
  std::string hint;
  for (const Column& c : columns_) {
    if (NamesSplit(c)) StrAppend(&hint, "; '", c.name, "' may divide the data: `eval_split` ", c.name);
    if (NamesRow(c)) StrAppend(&hint, "; '", c.name, "' may number the rows: `input` ", input.name, "=… leaves it out");
  }
  const Column& first = columns_.front();
  if (label_is_last_ && (!first.problem.empty() || !IsFloat(first.sample.dtype)))
    StrAppend(&hint, "; the label is the last column, '", columns_.back().name, "', unless `label` ", first.name,
              " says otherwise");
  return hint;
}

// The label of a table is by default its last column: refuses one that can be none.
absl::Status Binder::CheckDefaultLabel(int c) const {
  const Column& label = columns_[c];
  if (NamesSplit(label))
    return Invalid("the label would be the last column, '", label.name,
                   "', which seems to divide the data; choose with `label` COLUMN (and `eval_split` ", label.name, ")");
  return absl::OkStatus();
}

absl::Status Binder::BindOnlyInput(const ModelInput& input) {
  std::vector<int> usable, fitting;
  std::string left_out;
  ASSIGN_OR_RETURN(const Shape fixed, FixedDims(input));
  for (int c : FreeColumns()) {
    if (columns_[c].problem.empty()) {
      usable.push_back(c);
      const bool fits_moved = FindChannelMove(columns_[c], fixed).has_value();
      if (!input.has_shape || fits_moved || FitSample(columns_[c].sample.shape, fixed).ok()) fitting.push_back(c);
    } else {
      StrAppend(&left_out, left_out.empty() ? "" : "; ", columns_[c].problem);
    }
  }
  if (usable.empty()) {
    return Invalid(
        "no column is left for ", Choices(), left_out.empty() ? "" : StrCat(" (", left_out, ")"),
        input.texts == nullptr ? AdviseOddRow(columns_) : StrCat("; choose with `input` ", input.name, "=COLUMN"));
  }
  const auto fits = [&](const std::vector<int>& columns) {
    return !input.has_shape || FitSample({std::ssize(columns)}, fixed).ok();
  };
  if (usable.size() == 1 && (left_out.empty() || !IsTable() || fits(usable))) {
    bound_[input.name] = usable;
  } else if (IsTable()) {
    if (!fits(usable)) {
      if (const auto [features, others] = WithoutRowNames(usable); !others.empty() && fits(features)) {
        usable = features;
        StrAppend(&left_out, left_out.empty() ? "" : "; ", others);
      }
    }
    if (!fits(usable)) {
      return Invalid(
          "input ", InputText(input), " does not fit the ", usable.size(), " numeric columns that are not the label",
          left_out.empty() ? "" : StrCat(" (left out: ", left_out, "; `encode` takes in text, `fill` missing values)"),
          "; choose with `input` ", input.name, "=COLUMN,…", TableHint(input));
    }
    bound_[input.name] = usable;
    if (!left_out.empty()) out_.notes.push_back(StrCat("left out: ", left_out));
  } else if (fitting.size() == 1) {
    bound_[input.name] = fitting;
  } else {
    return Invalid("which column feeds what is not clear from ", Choices(), "; choose with `input` ", input.name,
                   "=COLUMN", spec_.want_label && out_.label.columns.empty() ? " and `label` COLUMN" : "");
  }
  return absl::OkStatus();
}

// Binds masks of pairs of tokens, [batch, (heads,) length, length]: true, 1 or a bias of 0 where a query sees a key.
void Binder::BindPairMasks() {
  for (const ModelInput* input : Unbound()) {
    const bool pairs = input->has_shape && (input->dims.size() == 3 || input->dims.size() == 4);
    if (!pairs || absl::AsciiStrToLower(input->name).find("mask") == std::string::npos) continue;
    const BlockRole role = IsFloat(input->dtype) ? BlockRole::kBias : BlockRole::kAttention;
    bound_[input->name] = {spec_.first_token_column + static_cast<int>(role)};
  }
}

// Binds inputs of [batch, length] to columns of tokens: by their names, and the one that is left to the token ids.
absl::Status Binder::BindTokens() {
  if (spec_.first_token_column < 0) return absl::OkStatus();
  if (spec_.token_blocks) BindPairMasks();
  std::vector<const ModelInput*> ids;
  for (const ModelInput* input : Unbound()) {
    if (input->has_shape && input->dims.size() != 2) continue;
    const std::optional<TokenRole> role = FindTokenRole(input->name);
    if (role.has_value()) {
      bound_[input->name] = {spec_.first_token_column + static_cast<int>(*role)};
    } else {
      ids.push_back(input);
    }
  }
  const auto named = [](const ModelInput* input) {
    return absl::AsciiStrToLower(input->name).find("input_ids") != std::string::npos;
  };
  if (ids.size() > 1 && std::ranges::count_if(ids, named) == 1) ids = {*std::ranges::find_if(ids, named)};
  if (ids.size() == 1) bound_[ids[0]->name] = {spec_.first_token_column};
  for (const auto& [input, columns] : bound_) {
    if (columns[0] == spec_.first_token_column) out_.token_input = input;
  }
  if (!out_.token_input.empty()) return absl::OkStatus();
  return Invalid("which input takes the token ids is not clear from ", Listed(inputs_, InputText),
                 "; say `input` NAME=", columns_[spec_.first_token_column].name);
}

// Binds helper inputs of text models to constants.
absl::Status Binder::BindDefaults() {
  struct Default {
    const char* part;
    const char* what;
    int64_t (*value)(int64_t position);
  };
  static constexpr Default kDefaults[] = {
      {"token_type_ids", "zeros", [](int64_t) -> int64_t { return 0; }},
      {"segment_ids", "zeros", [](int64_t) -> int64_t { return 0; }},
      {"attention_mask", "ones, nothing is padding", [](int64_t) -> int64_t { return 1; }},
      {"input_mask", "ones, nothing is padding", [](int64_t) -> int64_t { return 1; }},
      {"key_padding_mask", "zeros, nothing is padding",
       [](int64_t) -> int64_t { return 0; }},                                              // PyTorch marks padding,
      {"padding_mask", "ones, nothing is padding", [](int64_t) -> int64_t { return 1; }},  // Keras the rest
      {"position_ids", "0, 1, 2, …", [](int64_t i) { return i; }},
  };
  const auto real = std::find_if(bound_.begin(), bound_.end(), [&](const auto& entry) {
    return entry.second[0] < static_cast<int>(columns_.size());  // not a constant
  });
  if (real == bound_.end()) return absl::OkStatus();
  const Shape like = DataShape(real->second);
  for (const auto* input : Unbound()) {
    for (const Default& d : kDefaults) {
      if (absl::AsciiStrToLower(input->name).find(d.part) == std::string::npos || input->dims.size() != 2) continue;
      ASSIGN_OR_RETURN(const Shape fixed, FixedDims(*input));
      ASSIGN_OR_RETURN(const Shape shape, FitSample(like, fixed));
      HostTensor sample({input->dtype, shape});
      for (int64_t i = 0; i < sample.size(); ++i) sample.SetInt(i, d.value(i));
      bound_[input->name] = {static_cast<int>(columns_.size() + constants_.size())};
      constants_.push_back({input->name, std::move(sample)});
      out_.notes.push_back(
          StrCat("input '", input->name, "' is not in the data: ", d.what, " (`input` ", input->name, "=COLUMN)"));
      break;
    }
  }
  return absl::OkStatus();
}

absl::Status Binder::BindRest() {
  if (Unbound().size() > 1) RETURN_IF_ERROR(BindDefaults());
  std::vector<const ModelInput*> open = Unbound();
  // Defaults copy the shape of a bound input: the only real input is bound first.
  if (open.size() > 1 && bound_.empty()) {
    std::vector<const ModelInput*> real;
    for (const auto* input : open) {
      const std::string name = absl::AsciiStrToLower(input->name);
      if (name.find("mask") == std::string::npos && name.find("type_ids") == std::string::npos &&
          name.find("segment") == std::string::npos && name.find("position_ids") == std::string::npos) {
        real.push_back(input);
      }
    }
    if (real.size() == 1) {
      RETURN_IF_ERROR(BindOnlyInput(*real[0]));
      RETURN_IF_ERROR(BindDefaults());
    }
    open = Unbound();
  }
  if (open.size() == 1 && !bound_.empty()) RETURN_IF_ERROR(BindDefaults());
  open = Unbound();
  if (open.empty()) return absl::OkStatus();
  if (open.size() == 1) return BindOnlyInput(*open[0]);
  return Invalid("which column feeds what is not clear from ", Choices(), "; say `input` ", open[0]->name,
                 "=COLUMN for each");
}

// Returns the extents without the batch axis, named ones filled in.
absl::StatusOr<Shape> Binder::FixedDims(const ModelInput& input) const {
  Shape fixed;
  if (input.has_shape && input.dims.empty()) {
    return Invalid("input ", InputText(input), " has no batch axis: it cannot be fed with samples");
  }
  for (size_t i = 1; i < input.dims.size(); ++i) {
    const auto it = i < input.dim_names.size() ? spec_.dims.find(input.dim_names[i]) : spec_.dims.end();
    fixed.push_back(input.dims[i] < 0 && it != spec_.dims.end() ? it->second : input.dims[i]);
  }
  return fixed;
}

// Pictures that keep their sizes feed an input that leaves height and width open.
absl::Status SetHeightAxis(const Column& column, const Shape& fixed, FeedSpec* feed) {
  if (column.height_axis < 0) return absl::OkStatus();
  feed->height_axis = FindHeightAxis(column, feed->sample.shape);
  const int a = feed->height_axis;
  const bool open = a >= 0 && (fixed.empty() || (fixed[a] < 0 && fixed[a + 1] < 0));
  if (open && feed->columns.size() == 1) return absl::OkStatus();
  return Invalid("input '", feed->feed, "' takes no pictures of several sizes (`image_size` makes them one size)");
}

absl::StatusOr<FeedSpec> Binder::MakeFeed(const ModelInput& input, const std::vector<int>& columns) {
  const std::vector<Column>& all = out_.dataset->columns();
  FeedSpec feed{.feed = input.name, .columns = columns, .allow_nan = input.takes_missing};
  Shape data = all[columns[0]].sample.shape;
  if (columns.size() > 1) data.push_back(static_cast<int64_t>(columns.size()));
  feed.sample = {input.dtype, data};
  Shape fixed;
  if (input.has_shape) {
    ASSIGN_OR_RETURN(fixed, FixedDims(input));
    auto fitted = FitSample(data, fixed);
    if (!fitted.ok() && TakesRows(input, fixed) && !all[columns[0]].variable) fitted = Shape{NumElements(data)};
    if (!fitted.ok()) {
      // Of pictures a table has names that are those of no files.
      if (data.empty() && fixed.size() >= 3)
        return Invalid("input ", InputText(input), " takes arrays, column '", all[columns[0]].name,
                       "' has single values (a column of file names, with or without ending, is one of pictures or "
                       "sounds where the files are beside the table or in a folder beside it)");
      return Annotate(fitted.status(),
                      StrCat("input ", InputText(input), " and column '", all[columns[0]].name, "'",
                             columns.size() > 1 ? StrCat(" and ", columns.size() - 1, " more") : "", ": "));
    }
    feed.sample.shape = *fitted;
    feed.variable = all[columns[0]].variable && columns.size() == 1 && fixed.size() == 1 && fixed[0] < 0;
  }
  RETURN_IF_ERROR(SetHeightAxis(all[columns[0]], fixed, &feed));
  const bool free =
      !input.has_shape || std::any_of(input.dims.begin() + 1, input.dims.end(), [](int64_t d) { return d < 0; });
  if (free) {
    Shape& shape = out_.input_shapes[input.name] = {-1};
    shape.insert(shape.end(), feed.sample.shape.begin(), feed.sample.shape.end());
  }
  return feed;
}

// Features of a byte each may be as many as the pixels of a square picture: bits of a fingerprint, counts, categories.
bool HasBrightPixels(const Dataset& data, int c) {
  constexpr int64_t kMostSamples = 1000;
  constexpr std::byte kBright{128};
  const int64_t count = std::min(data.size(), kMostSamples);
  std::vector<std::byte> row(data.columns()[c].sample.bytes());
  for (int64_t k = 0; k < count; ++k) {
    const bool read = data.Read(k * data.size() / count, c, row).ok();
    if (read && std::ranges::any_of(row, [](std::byte b) { return b >= kBright; })) return true;
  }
  return false;
}

bool Binder::FeedsImage(const std::vector<int>& columns) const {
  return columns.size() == 1 && out_.dataset->columns()[columns[0]].image;
}

bool Binder::HoldsPixels(const std::string& input, int c) const {
  const auto is_row = [&](int column) { return out_.dataset->columns()[column].sample.rank() == 1; };
  if (!is_row(c)) return true;
  if (spec_.pixel_inputs.has_value()) return spec_.pixel_inputs->contains(input);
  const bool others = std::ranges::any_of(
      bound_, [&](const auto& bound) { return FeedsImage(bound.second) && !is_row(bound.second[0]); });
  return (spec_.asked_for_pixels && !others) || HasBrightPixels(*out_.dataset, c);
}

// Transposes pictures in arrays whose channels are along another axis than the input's.
absl::Status Binder::PlaceChannels() {
  std::map<int, ChannelMove> moves;
  for (const auto& input : inputs_) {
    const std::vector<int>& columns = bound_.at(input.name);
    if (!input.has_shape || columns.size() != 1 || columns[0] >= std::ssize(columns_)) continue;
    ASSIGN_OR_RETURN(const Shape fixed, FixedDims(input));
    if (const auto move = FindChannelMove(columns_[columns[0]], fixed)) moves.emplace(columns[0], *move);
  }
  for (const auto& [c, move] : moves) {
    Column& column = columns_[c];
    const std::string from = ToString(column.sample);
    column.sample.shape = MoveChannels(column.sample.shape, move);
    out_.notes.push_back(StrCat("column '", column.name, "' ", from, " is transposed to ", ToString(column.sample),
                                ": the channels of the input are along its ",
                                move == ChannelMove::kToFirst ? "first" : "last", " axis"));
  }
  out_.dataset = WithMovedChannels(out_.dataset, std::move(moves));
  return absl::OkStatus();
}

absl::Status Binder::AddFeeds() {
  out_.dataset = WithConstants(out_.dataset, constants_);
  std::vector<int> numbers;  // columns of bytes that are no pixels
  for (const auto& input : inputs_) {
    const std::vector<int>& columns = bound_.at(input.name);
    ASSIGN_OR_RETURN(FeedSpec feed, MakeFeed(input, columns));
    const Column& first = out_.dataset->columns()[columns[0]];
    const bool pixels = FeedsImage(columns) && HoldsPixels(input.name, columns[0]);
    if (pixels) {
      out_.has_images = true;
      RETURN_IF_ERROR(SetPixelScale(spec_.pixels, &feed));
    } else if (FeedsImage(columns)) {
      numbers.push_back(columns[0]);
    }
    if (columns[0] < static_cast<int>(columns_.size())) {
      out_.notes.push_back(StrCat("input '", input.name, "' ", ToString(feed.sample), " ← ",
                                  columns.size() == 1 ? StrCat("column '", first.name, "' ", ToString(first.sample))
                                                      : StrCat(columns.size(), " columns '", first.name, "' … '",
                                                               out_.dataset->columns()[columns.back()].name, "'")));
    }
    out_.feeds.push_back(std::move(feed));
  }
  out_.dataset = WithoutPixels(out_.dataset, numbers);
  return absl::OkStatus();
}

absl::Status Binder::AddLabel(std::string_view what, BoundLabel* label) {
  if (label->columns.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(DescribeLabel(*out_.dataset, what, spec_.ignore_index, spec_.skip_bad, label));
  out_.notes.push_back(label->text);
  return absl::OkStatus();
}

// Labels that are the model's own classes become indices into them.
absl::Status Binder::NumberClasses() {
  if (spec_.classes.empty() || out_.label.columns.size() != 1 || AreIndices(spec_.classes)) return absl::OkStatus();
  const int c = out_.label.columns[0];
  const Column& label = columns_[c];
  const auto quoted = [](const std::string& name) { return StrCat("'", name, "'"); };
  if (label.classes == spec_.classes) return absl::OkStatus();
  const bool numbers = !IntegerClasses(spec_.classes).empty();
  if (numbers && !label.classes.empty())
    return Invalid("the label column '", label.name, "' holds names (", Listed(label.classes, quoted),
                   "), but the model's classes are ", Listed(spec_.classes, quoted));
  if (!numbers || !label.problem.empty() || (IsFloat(label.sample.dtype) && label.sample.elements() != 1))
    return absl::OkStatus();
  out_.dataset = WithClassIndices(out_.dataset, c, spec_.classes, spec_.ignore_index);
  columns_ = out_.dataset->columns();
  return absl::OkStatus();
}

absl::StatusOr<MaskEncoding> Binder::GetMaskInk(int c) const {
  if (!spec_.mask_inks.has_value()) return FindMaskInk(*out_.dataset, c, spec_.skip_bad);
  const auto trained = spec_.mask_inks->find(columns_[c].name);
  return trained == spec_.mask_inks->end() ? MaskEncoding::kClasses : trained->second;
}

// Masks of 0 and 255 that nothing but the label reads become 0 and 1.
absl::Status Binder::ReadDrawnMasks() {
  if (spec_.ignore_index == 255) return absl::OkStatus();
  std::set<int> fed;
  for (const auto& [input, columns] : bound_) fed.insert(columns.begin(), columns.end());
  std::map<int, MaskEncoding> inks;
  for (const std::string& key : spec_.class_labels) {
    const BoundLabel* label = FindBoundLabel(out_, key);
    const int c = label == nullptr || label->columns.size() != 1 ? -1 : label->columns[0];
    if (c < 0 || fed.contains(c) || !columns_[c].classes.empty()) continue;
    ASSIGN_OR_RETURN(const MaskEncoding ink, GetMaskInk(c));
    if (ink == MaskEncoding::kClasses || !inks.emplace(c, ink).second) continue;
    out_.mask_inks[columns_[c].name] = ink;
    out_.notes.push_back(StrCat("labels '", columns_[c].name,
                                ink == MaskEncoding::kGreys ? "' of greys are taken for 0 and 1 (from 128 on)"
                                                            : "' of 0 and 255 are taken for 0 and 1"));
  }
  out_.dataset = WithMaskClasses(out_.dataset, inks);
  for (const auto& [c, ink] : inks) columns_[c] = out_.dataset->columns()[c];
  return absl::OkStatus();
}

// Folders and texts are numbered in the order of their names: '10' comes before '2'.
void Binder::NoteTextOrder() {
  const std::vector<int64_t> numbers = IntegerClasses(out_.classes);
  const auto descent = std::ranges::is_sorted_until(numbers);
  if (!out_.classes_are_sorted || descent == numbers.end()) return;
  const auto place = descent - numbers.begin() - 1;
  out_.notes.push_back(StrCat("classes are numbered in the order of their names as text: '", out_.classes[place],
                              "' is class ", place, ", before '", out_.classes[place + 1],
                              "' (`class_map` FILE gives another order)"));
}

// "<=50K" and "<=50K." are one class, most often.
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
  RETURN_IF_ERROR(ReadDrawnMasks());
  RETURN_IF_ERROR(AddLabel("label", &out_.label));
  for (auto& [key, label] : out_.own_labels) RETURN_IF_ERROR(AddLabel("label of its own", &label));
  return absl::OkStatus();
}

// A first column of classes before columns of numbers is a label more likely than a last one without any classes.
void Binder::WarnOfDefaultLabel() {
  const Column &first = columns_.front(), &last = columns_[LastColumn()];
  const LabelInfo& label = out_.label.info;
  if (!label_is_last_ || IsFloat(first.sample.dtype) || !first.problem.empty() || !last.classes.empty()) return;
  if (!IsFloat(label.sample.dtype) && label.min_value != label.max_value) return;
  out_.warnings.push_back(StrCat("the label is the last column, '", last.name, "', whose values are ",
                                 IsFloat(label.sample.dtype) ? "no integers" : StrCat("all ", label.min_value),
                                 "; if it is the first one, add `label` ", first.name));
}

absl::StatusOr<BoundData> Binder::Run() {
  RETURN_IF_ERROR(BindExplicit());
  RETURN_IF_ERROR(FindLabel());
  BindByName();
  RETURN_IF_ERROR(BindTokens());
  RETURN_IF_ERROR(BindRest());
  // A single remaining column is the label.
  if (const std::vector<int> left = FreeColumns(); out_.label.columns.empty() && spec_.want_label && left.size() == 1) {
    out_.label.columns = left;
  }
  if (spec_.read_labels) RETURN_IF_ERROR(NumberClasses());
  RETURN_IF_ERROR(PlaceChannels());
  RETURN_IF_ERROR(AddFeeds());
  if (spec_.read_labels) RETURN_IF_ERROR(DescribeLabels());
  WarnOfDefaultLabel();
  return std::move(out_);
}

}  // namespace

absl::Status SetPixelScale(const PixelScale& pixels, FeedSpec* feed) {
  feed->scale = pixels.scale;
  feed->mean = pixels.mean;
  feed->std = pixels.std;
  if (pixels.mean.size() <= 1) return absl::OkStatus();
  const auto channels = static_cast<int64_t>(pixels.mean.size());
  const Shape& shape = feed->sample.shape;
  if (!shape.empty() && shape.front() == channels) return absl::OkStatus();
  feed->channel_axis = static_cast<int>(shape.size()) - 1;
  if (!shape.empty() && shape.back() == channels) return absl::OkStatus();
  return Invalid("`normalize` gives ", channels, " channels, but input '", feed->feed, "' is ", ToString(feed->sample));
}

absl::StatusOr<Shape> FitSample(const Shape& data, const Shape& fixed) {
  const auto differ = [&] {
    return Invalid("a sample is ", ToString(data), ", which does not fit ", DimsText(fixed, {}));
  };
  for (const Shape& view : Views(data, fixed.size())) {
    if (Compatible(view, fixed)) return view;
  }
  const auto free = std::count_if(fixed.begin(), fixed.end(), [](int64_t d) { return d < 0; });
  if (free > 0) return differ();
  if (NumElements(data) != NumElements(fixed)) return differ();
  const Shape a = WithoutOnes(data), b = WithoutOnes(fixed);
  if (a == b || a.size() <= 1 || b.size() <= 1) return fixed;
  return Invalid("a sample is ", ToString(data), ", the model wants ", ToString(fixed),
                 ": as many values in another order; transpose the data");
}

absl::StatusOr<std::optional<int>> LabelByName(const std::vector<Column>& columns, bool want_label) {
  static const std::set<std::string> kNames = {"label", "labels",  "target", "targets", "y",
                                               "class", "y_train", "y_test", "cls"};  // WebDataset's
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

absl::StatusOr<BoundData> BindData(const std::vector<ModelInput>& inputs, std::shared_ptr<const Dataset> dataset,
                                   const BindSpec& spec) {
  return Binder(inputs, std::move(dataset), spec).Run();
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
