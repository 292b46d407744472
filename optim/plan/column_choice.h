// Which columns of a file feed the inputs of a model and are its labels, from configuration and earlier training.
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

// Inputs that take data as it is in a file, because the model encodes it: strings, which encoders of categories read,
// and missing values, which an imputer fills in.

struct RawInput {
  std::string name;
  std::vector<std::string> columns;  // that feed it, by name or 0-based index; empty: those of its name
  std::shared_ptr<const std::vector<std::string>> texts;  // as ModelInput has them; null: it takes missing values
  bool alone = false;                                     // the model has no other input: all columns feed it
};

// `columns` has the columns that are chosen already, by input.
std::vector<RawInput> ListRawInputs(const std::vector<ModelInput>& inputs,
                                    const std::map<std::string, std::vector<std::string>>& columns);

// Lets the reader of the file keep their categories and missing values, as far as the names of the columns are known
// before it is open.
void AllowRawInputs(const std::vector<RawInput>& inputs, DatasetOptions* options);

// Returns the transforms of the columns that feed inputs of strings, without those of `untouched` where all columns do.
// Adds the columns to `options`; returns in *reopen whether they were not all there.
std::vector<ColumnTransform> PlaceTexts(const std::vector<RawInput>& inputs, const std::vector<Column>& columns,
                                        const std::set<std::string>& untouched, DatasetOptions* options, bool* reopen);

bool HasColumn(const std::vector<Column>& columns, const std::string& name);

// The name of a column that is given by name or 0-based index; other texts as they are.
std::string ResolveColumn(const std::vector<Column>& columns, const std::string& name);

// Does a file have columns with the names of model inputs that were trained on other columns? Then it fits the model as
// it is, and the columns of the training data say nothing about it.
bool HoldsModelInputs(const std::vector<Column>& columns,
                      const std::map<std::string, std::vector<std::string>>& trained_on);

// Reconciles the columns of the training data with a file. A single array needs no name. Columns that are not there are
// an error with `same_columns`, unless the file HoldsModelInputs; else all of their input, or the label, are inferred
// again.
absl::Status MatchColumns(const std::vector<Column>& columns, bool same_columns, BindSpec* spec);

// The columns of each input that config.input names, without inputs that are `constants`.
absl::StatusOr<std::map<std::string, std::vector<std::string>>> ParseInputs(
    const std::vector<std::string>& texts, const std::map<std::string, std::string>& constants);

// Collects the labels of single terms; where every term has its own, no common label is inferred.
absl::Status AddOwnLabels(const LossSpec& loss, const OnnxModel& model, const std::vector<Column>& columns,
                          BindSpec* spec);

}  // namespace onnxtrain
