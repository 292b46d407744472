#include "optim/plan/open_data.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/bind/names.h"
#include "frontend/data/sources/dataset.h"
#include "optim/config/loss_text.h"
#include "optim/plan/input_plan.h"
#include "optim/plan/model_setup.h"
#include "optim/step/onnx_functions.h"

namespace onnxtrain {
namespace {

std::vector<std::string> ListNames(const RawInput& input) {
  return input.columns.empty() ? std::vector<std::string>{input.name, std::string(StripExporterAffixes(input.name))}
                               : input.columns;
}

std::vector<std::string> ListColumns(const RawInput& input, const std::vector<Column>& columns,
                                     const std::set<std::string>& untouched) {
  std::vector<std::string> found;
  for (const std::string& name : ListNames(input)) {
    const std::string column = ResolveColumn(columns, name);
    if (HasColumn(columns, column) && std::ranges::count(found, column) == 0) found.push_back(column);
  }
  if (!found.empty() || !input.alone) return found;
  for (const Column& column : columns) {
    if (!untouched.contains(column.name) && !column.image) found.push_back(column.name);
  }
  return found;
}

}  // namespace

std::vector<RawInput> ListRawInputs(const std::vector<ModelInput>& inputs,
                                    const std::map<std::string, std::vector<std::string>>& columns) {
  std::vector<RawInput> found;
  for (const ModelInput& input : inputs) {
    if (input.texts == nullptr && !input.takes_missing) continue;
    const auto chosen = columns.find(input.name);
    found.push_back({.name = input.name,
                     .columns = chosen == columns.end() ? std::vector<std::string>() : chosen->second,
                     .texts = input.texts,
                     .alone = inputs.size() == 1});
  }
  return found;
}

void AllowRawInputs(const std::vector<RawInput>& inputs, DatasetOptions* options) {
  for (const RawInput& input : inputs) {
    options->missing.all |= input.alone;
    for (const std::string& name : ListNames(input)) {
      options->missing.names.insert(name);
      if (input.texts != nullptr) options->categories.names.insert(name);
    }
  }
}

std::vector<ColumnTransform> PlaceTexts(const std::vector<RawInput>& inputs, const std::vector<Column>& columns,
                                        const std::set<std::string>& untouched, DatasetOptions* options, bool* reopen) {
  std::vector<ColumnTransform> transforms;
  for (const RawInput& input : inputs) {
    if (input.texts == nullptr) continue;
    for (const std::string& column : ListColumns(input, columns, untouched)) {
      *reopen |= options->categories.names.insert(column).second;
      options->missing.names.insert(column);
      transforms.push_back({.column = column, .categories = *input.texts, .open = true});
    }
  }
  return transforms;
}

namespace {

std::string ListColumns(const std::vector<Column>& columns) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t c = 0; c < columns.size() && c < kMost; ++c) StrAppend(&text, c == 0 ? "'" : ", '", columns[c].name, "'");
  return columns.size() > kMost ? StrCat(text, ", … (", columns.size(), " in all)") : text;
}

// Binds inputs of the loss that are columns; the remaining ones must be the label.
void AddOnnxColumns(const OnnxModel& loss, const OnnxModel& model, const std::vector<Column>& columns, BindSpec* spec) {
  for (const std::string& name : OnnxLossColumns(loss, model)) {
    const bool column = std::any_of(columns.begin(), columns.end(), [&](const Column& c) { return c.name == name; });
    if (column) spec->own_labels[name] = {name};
    spec->want_label |= !column && MeansLabel(name);
  }
}

}  // namespace

bool HasColumn(const std::vector<Column>& columns, const std::string& name) {
  return std::ranges::any_of(columns, [&](const Column& c) { return c.name == name; });
}

bool HoldsModelInputs(const std::vector<Column>& columns,
                      const std::map<std::string, std::vector<std::string>>& trained_on) {
  return std::ranges::any_of(trained_on, [&](const auto& entry) {
    const std::vector<std::string>& names = entry.second;
    const auto fits = [&](const std::string& name) {
      return HasColumn(columns, name) && std::ranges::find(names, name) == names.end();
    };
    return fits(entry.first) || fits(std::string(StripExporterAffixes(entry.first)));
  });
}

std::string ResolveColumn(const std::vector<Column>& columns, const std::string& name) {
  const auto index = ParseInt(name);
  const bool number = index.ok() && *index >= 0 && *index < std::ssize(columns);
  return !HasColumn(columns, name) && number ? columns[*index].name : name;
}

absl::Status MatchColumns(const std::vector<Column>& columns, bool same_columns, BindSpec* spec) {
  same_columns = same_columns && !HoldsModelInputs(columns, spec->inputs);
  const auto match = [&](std::vector<std::string>* names, const std::string& what) -> absl::StatusOr<bool> {
    for (std::string& name : *names) {
      name = FindCounterpart(columns, name);
      if (HasColumn(columns, name)) continue;
      if (!same_columns || columns.size() == 1) return false;
      return Invalid("there is no column '", name, "', ", what, "; the columns are ", ListColumns(columns));
    }
    return true;
  };
  for (auto entry = spec->inputs.begin(); entry != spec->inputs.end();) {
    const std::string& input = entry->first;
    ASSIGN_OR_RETURN(const bool found,
                     match(&entry->second, StrCat("which input '", input, "' was trained on (`input` ", input,
                                                  "=COLUMN,… names others)")));
    entry = found ? std::next(entry) : spec->inputs.erase(entry);
  }
  ASSIGN_OR_RETURN(const bool labelled, match(&spec->label, "the label in training (`label` names another)"));
  if (!labelled) spec->label.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, std::vector<std::string>>> ParseInputs(
    const std::vector<std::string>& texts, const std::map<std::string, std::string>& constants) {
  std::map<std::string, std::vector<std::string>> given;
  for (const std::string& text : texts) {
    auto pair = ParsePair(text, "MODEL_INPUT=COLUMN[,…]");
    if (!pair.ok()) return Annotate(pair.status(), "`input`: ");
    if (constants.contains(pair->first)) continue;
    auto columns = ParseList(pair->second);
    if (!columns.ok()) return Annotate(columns.status(), StrCat("`input` ", text, ": "));
    if (!given.emplace(pair->first, *columns).second) return Invalid("`input` ", pair->first, ": given twice");
  }
  return given;
}

absl::Status AddOwnLabels(const LossSpec& loss, const OnnxModel& model, const std::vector<Column>& columns,
                          BindSpec* spec) {
  ASSIGN_OR_RETURN(const std::vector<LossTermSpec> terms, ParseLoss(loss.name));
  spec->want_label = false;
  for (const LossTermSpec& term : terms) {
    if (!term.file.empty()) {
      AddOnnxColumns(*loss.onnx.at(term.file), model, columns, spec);
      continue;
    }
    const bool of_its_own = !term.label.empty();
    if (of_its_own) spec->own_labels[term.label_key()] = term.label;
    spec->want_label |= !of_its_own;
  }
  return absl::OkStatus();
}

}  // namespace onnxtrain
