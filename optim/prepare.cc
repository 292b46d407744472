#include "optim/prepare.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "optim/optimize.h"

namespace onnxtrain {

absl::StatusOr<ImportedModel> ImportAsWritten(const OnnxModel& model, const PrepareOptions& options, int64_t batch, bool training) {
  ImportOptions import = options.import;
  import.batch = batch;
  import.training = training;
  for (auto& [name, shape] : import.input_shapes) std::replace(shape.begin(), shape.end(), int64_t{-1}, batch);
  // --logits may name an internal value: everything behind it is then cut off.
  const auto& outputs = model.outputs();
  const std::string& logits = options.loss.logits;
  if (!logits.empty() && std::find(outputs.begin(), outputs.end(), logits) == outputs.end()) import.outputs = {logits};
  return Import(model, import);
}

absl::StatusOr<ImportedModel> ImportForward(const OnnxModel& model, const PrepareOptions& options, int64_t batch, bool training) {
  ASSIGN_OR_RETURN(ImportedModel imported, ImportAsWritten(model, options, batch, training));
  ASSIGN_OR_RETURN(imported.graph, OptimizeForward(std::move(imported.graph)));
  return imported;
}

absl::StatusOr<PreparedModel> Prepare(const OnnxModel& model, const PrepareOptions& options, int64_t batch, bool training) {
  PreparedModel prepared;
  ASSIGN_OR_RETURN(prepared.model, ImportForward(model, options, batch, training));
  ASSIGN_OR_RETURN(prepared.weights, DecideTrainable(&prepared.model, options.trainable));
  ASSIGN_OR_RETURN(prepared.loss, ChooseLoss(prepared.model, options.loss, options.labels));
  return prepared;
}

}  // namespace onnxtrain
