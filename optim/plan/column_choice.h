// Which columns of a file feed the inputs of a model and are its labels, from configuration and earlier training.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/binding.h"
#include "frontend/onnx/import.h"
#include "optim/step/loss.h"

namespace onnxtrain {

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
