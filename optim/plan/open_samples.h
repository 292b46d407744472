// Opens a file of samples: finds its label, holds samples out, and fits or applies its column transforms.
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
  std::vector<Column> file_columns;        // the columns before the transforms
  std::vector<ColumnTransform> transforms;
  std::set<std::string> text_columns;  // columns encoded as indices of the model's strings
  std::optional<HeldOut> held_out;
  std::vector<std::string> notes;

  // Resolves a name or 0-based index of a column of the file to the columns of `dataset` that replace it.
  std::vector<std::string> Resolve(const std::string& column) const;
};

// Opens the samples. `options` has the label and the classes of the model. With DataRequest::fit, fits the transforms
// that the configuration asks for; otherwise applies those of `before`.
absl::StatusOr<OpenedSamples> OpenSamples(const TrainConfig& config, const std::optional<Preprocess>& before,
                                          const DataRequest& request, DatasetOptions options, const LossSpec& loss);

// Returns "x_test" for "x_train" if only "x_test" is among the columns.
std::string FindCounterpart(const std::vector<Column>& columns, const std::string& name);

}  // namespace onnxtrain
