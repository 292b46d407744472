#include "optim/plan/raw_inputs.h"

#include <algorithm>

#include "frontend/data/bind/input_names.h"
#include "optim/plan/column_choice.h"

namespace onnxtrain {
namespace {

std::vector<std::string> ListNames(const RawInput& input) {
  return input.columns.empty() ? std::vector<std::string>{input.name, std::string(StemOf(input.name))} : input.columns;
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

}  // namespace onnxtrain
