// Opens a file of samples: finds its label, holds samples out, and fits or applies the transforms of its columns.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/transform/transform.h"
#include "optim/plan/open_data.h"
#include "optim/step/loss.h"

namespace onnxtrain {

struct OpenedSamples {
  std::shared_ptr<const Dataset> dataset;  // transformed
  std::vector<Column> file_columns;        // before that
  std::vector<ColumnTransform> transforms;
  std::set<std::string> text_columns;  // places among the texts of the model
  std::optional<HeldOut> held_out;
  std::vector<std::string> notes;

  // Resolves a name or 0-based index of a column of the file to the columns of `dataset` that stand for it.
  std::vector<std::string> Resolve(const std::string& column) const;
};

// `options` has the label and the classes of the model. With DataRequest::fit the transforms are fitted as config says,
// without such flags they are those of `before`.
absl::StatusOr<OpenedSamples> OpenSamples(const TrainConfig& config, const std::optional<Preprocess>& before,
                                          const DataRequest& request, DatasetOptions options, const LossSpec& loss);

// Returns "x_test" for "x_train" where only the former is among the columns.
std::string FindCounterpart(const std::vector<Column>& columns, const std::string& name);

}  // namespace onnxtrain
