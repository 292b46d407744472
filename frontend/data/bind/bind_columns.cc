// The steps of Binder that choose columns for model inputs.
#include "frontend/data/bind/binder.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/bind/names.h"

namespace onnxtrain {

namespace {

// Returns advice if a single row makes several columns unusable, such as a title above the table or totals below it.
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

}  // namespace

absl::StatusOr<int> Binder::Resolve(const std::string& name, std::string_view flag) const {
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (columns_[c].name == name) return static_cast<int>(c);
  }
  const auto index = ParseInt(name);
  if (index.ok() && *index >= 0 && *index < static_cast<int64_t>(columns_.size())) return static_cast<int>(*index);
  return Invalid(flag, ": there is no column '", name, "'; there are ", JoinFirst(columns_, ColumnText));
}

absl::Status Binder::BindExplicit() {
  for (const auto& [input, names] : spec_.inputs) {
    const bool known = std::ranges::find(inputs_, input, &ModelInput::name) != inputs_.end();
    if (!known)
      return Invalid("`input` ", input, "=…: the model has no such input; it has ", JoinFirst(inputs_, InputText));
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

// Returns true if every column is a scalar or a sequence, as in CSV.
bool Binder::IsTable() const {
  return columns_.size() > 1 && std::all_of(columns_.begin(), columns_.end(),
                                            [](const Column& c) { return c.variable || c.sample.shape.empty(); });
}

// Returns the last column that can be the label of a table.
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

// Binds inputs to columns that have the input's name without the exporter's additions.
void Binder::BindByStem() {
  std::map<std::string_view, std::vector<const ModelInput*>> by_stem;
  for (const auto* input : Unbound()) by_stem[StripExporterAffixes(input->name)].push_back(input);
  for (const int c : FreeColumns()) {
    const auto found = by_stem.find(columns_[c].name);
    if (found != by_stem.end() && found->second.size() == 1 && columns_[c].problem.empty())
      bound_[found->second[0]->name].push_back(c);
  }
}

std::string Binder::Choices() const {
  std::vector<Column> left;
  for (int c : FreeColumns()) left.push_back(columns_[c]);
  std::vector<ModelInput> open;
  for (const auto* input : Unbound()) open.push_back(*input);
  return StrCat("the model's ", open.size() == 1 ? "input " : "inputs ", JoinFirst(open, InputText),
                " and the columns ", JoinFirst(left, ColumnText));
}

// Returns the columns without those whose names mark them as row numbers or parts of the data, and a text about the
// latter.
std::pair<std::vector<int>, std::string> Binder::WithoutRowNames(const std::vector<int>& columns) const {
  std::vector<int> features;
  std::string others;
  for (const int c : columns) {
    const bool split = NamesSplit(columns_[c].name);
    if (!split && !NamesRow(columns_[c].name)) {
      features.push_back(c);
    } else {
      StrAppend(&others, others.empty() ? "" : "; ", "column '", columns_[c].name, "', which seems to ",
                split ? "divide the data" : "number the rows");
    }
  }
  return {features, others};
}

// Returns hints for the error that the columns of a table do not fit an input.
std::string Binder::TableHint(const ModelInput& input) const {
  std::string hint;
  for (const Column& c : columns_) {
    if (NamesSplit(c.name)) StrAppend(&hint, "; '", c.name, "' may divide the data: `eval_split` ", c.name);
    if (NamesRow(c.name))
      StrAppend(&hint, "; '", c.name, "' may number the rows: `input` ", input.name, "=… leaves it out");
  }
  const Column& first = columns_.front();
  if (label_is_last_ && (!first.problem.empty() || !IsFloat(first.sample.dtype)))
    StrAppend(&hint, "; the label is the last column, '", columns_.back().name, "', unless `label` ", first.name,
              " says otherwise");
  return hint;
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

// Binds attention masks of shape [batch, (heads,) length, length]: true, 1 or a bias of 0 where a query sees a key.
void Binder::BindPairMasks() {
  for (const ModelInput* input : Unbound()) {
    const bool pairs = input->has_shape && (input->dims.size() == 3 || input->dims.size() == 4);
    if (!pairs || absl::AsciiStrToLower(input->name).find("mask") == std::string::npos) continue;
    const BlockRole role = IsFloat(input->dtype) ? BlockRole::kBias : BlockRole::kAttention;
    bound_[input->name] = {spec_.first_token_column + static_cast<int>(role)};
  }
}

// Binds inputs of shape [batch, length] to token columns by name, and the remaining one to the token ids.
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
  return Invalid("which input takes the token ids is not clear from ", JoinFirst(inputs_, InputText),
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
       [](int64_t) -> int64_t { return 0; }},  // in PyTorch, 1 marks padding
      {"padding_mask", "ones, nothing is padding", [](int64_t) -> int64_t { return 1; }},  // in Keras, 1 marks tokens
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
  // Defaults take the shape of a bound input, so the only input that is no helper is bound first.
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

namespace {

// Returns true if one of up to 1000 samples has a byte of at least 128. Tells pixels from other vectors of bytes whose
// length is a square: fingerprints, counts, categories.
bool HasBrightPixels(const Dataset& data, int c) {
  constexpr int64_t kMaxSamples = 1000;
  constexpr std::byte kBright{128};
  const int64_t count = std::min(data.size(), kMaxSamples);
  std::vector<std::byte> row(data.columns()[c].sample.bytes());
  for (int64_t k = 0; k < count; ++k) {
    const bool read = data.Read(k * data.size() / count, c, row).ok();
    if (read && std::ranges::any_of(row, [](std::byte b) { return b >= kBright; })) return true;
  }
  return false;
}

}  // namespace

bool Binder::FeedsImage(const std::vector<int>& columns) const {
  return columns.size() == 1 && out_.dataset->columns()[columns[0]].image;
}

bool Binder::HoldsPixels(const std::string& input, int c) const {
  const auto is_row = [&](int column) { return out_.dataset->columns()[column].sample.rank() == 1; };
  if (!is_row(c)) return true;
  if (spec_.pixel_inputs.has_value()) return spec_.pixel_inputs->contains(input);
  const bool others = std::ranges::any_of(
      bound_, [&](const auto& bound) { return FeedsImage(bound.second) && !is_row(bound.second[0]); });
  return (spec_.pixels_requested && !others) || HasBrightPixels(*out_.dataset, c);
}

}  // namespace onnxtrain
