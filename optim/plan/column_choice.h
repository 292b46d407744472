// Chooses the columns of a file that feed the inputs of a model and the labels, from configuration and earlier
// training.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/data/sources/dataset.h"
#include "frontend/data/transform/transform.h"
#include "frontend/graph/model_input.h"
#include "frontend/onnx/import.h"
#include "optim/step/loss.h"

namespace onnxtrain {

// An input that takes unencoded data because the model encodes it: strings for a category encoder, or missing values
// for an imputer.
struct RawInput {
  std::string name;
  std::vector<std::string> columns;  // columns that feed it, by name or 0-based index; empty: the column with its name
  std::shared_ptr<const std::vector<std::string>> texts;  // as in ModelInput; null: it takes missing values
  bool alone = false;                                     // the model has no other input: all columns feed it
};

// Returns the inputs of the model that take strings or missing values. `columns` has the columns already chosen, by
// input.
std::vector<RawInput> ListRawInputs(const std::vector<ModelInput>& inputs,
                                    const std::map<std::string, std::vector<std::string>>& columns);

// Makes the reader of the file keep the categories and missing values of the columns that feed these inputs, if their
// names are known before the file is open.
void AllowRawInputs(const std::vector<RawInput>& inputs, DatasetOptions* options);

// Returns the transforms of the columns that feed inputs of strings. If all columns feed one, skips those in
// `untouched`. Adds the columns to `options` and sets *reopen if some were not there yet.
std::vector<ColumnTransform> PlaceTexts(const std::vector<RawInput>& inputs, const std::vector<Column>& columns,
                                        const std::set<std::string>& untouched, DatasetOptions* options, bool* reopen);

bool HasColumn(const std::vector<Column>& columns, const std::string& name);

// Returns the name of a column that is given by name or 0-based index; returns other texts unchanged.
std::string ResolveColumn(const std::vector<Column>& columns, const std::string& name);

// Returns true if the file has columns with the names of model inputs that were trained on other columns. Such a file
// is made for the model's inputs directly, so the columns of the training data do not apply.
bool HoldsModelInputs(const std::vector<Column>& columns,
                      const std::map<std::string, std::vector<std::string>>& trained_on);

// Reconciles the columns of the training data with a file. A single array needs no name. With `same_columns`, missing
// columns are an error unless the file HoldsModelInputs; otherwise all columns of that input, or the label, are
// inferred again.
absl::Status MatchColumns(const std::vector<Column>& columns, bool same_columns, BindSpec* spec);

// Returns the columns of each input that config.input names, without inputs that are `constants`.
absl::StatusOr<std::map<std::string, std::vector<std::string>>> ParseInputs(
    const std::vector<std::string>& texts, const std::map<std::string, std::string>& constants);

// Collects the labels of single terms. If every term has its own, no common label is inferred.
absl::Status AddOwnLabels(const LossSpec& loss, const OnnxModel& model, const std::vector<Column>& columns,
                          BindSpec* spec);

}  // namespace onnxtrain
