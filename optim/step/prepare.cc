#include "optim/step/prepare.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "optim/step/fixed_masks.h"
#include "optim/step/logits.h"
#include "optim/step/program/optimize.h"

namespace onnxtrain {
namespace {

// Names that begin with "$" are reserved for what training adds to a graph.
absl::Status CheckNames(const ImportedModel& model) {
  std::vector<std::string> names = model.outputs;
  for (const GraphInput& input : model.graph.inputs()) names.push_back(input.name);
  for (const std::string& name : names) {
    if (name.starts_with("$"))
      return Invalid("'", name, "': names of inputs, outputs and weights must not begin with '$'");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImportedModel> ImportAsWritten(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                              bool training) {
  ImportOptions import = options.import;
  import.batch = batch;
  import.training = training;
  for (auto& [name, shape] : import.input_shapes) std::replace(shape.begin(), shape.end(), int64_t{-1}, batch);
  // A loss may be on an internal value: what follows it is dropped.
  ASSIGN_OR_RETURN(import.outputs, LossOutputs(model, options.loss));
  import.negated = options.loss.negated;
  ASSIGN_OR_RETURN(ImportedModel imported, Import(model, import));
  RETURN_IF_ERROR(Annotate(CheckNames(imported), StrCat(model.path(), ": ")));
  return imported;
}

absl::StatusOr<ImportedModel> ImportForward(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                            bool training) {
  ASSIGN_OR_RETURN(ImportedModel imported, ImportAsWritten(model, options, batch, training));
  ASSIGN_OR_RETURN(imported.graph, OptimizeForward(std::move(imported.graph)));
  ExposeLogits(&imported);
  return imported;
}

namespace {

// With a frozen scale, batch statistics would drift away from it. Constants, the ones that exporters write for a
// normalization without weights, are nothing that somebody has frozen.
std::set<std::string> FrozenScales(const Graph& graph, const std::vector<WeightDecision>& weights) {
  std::set<std::string> names, constants;
  for (const WeightDecision& weight : weights) {
    if (weight.reason == WeightReason::kConstant) constants.insert(weight.name);
  }
  for (const Node& node : graph.nodes()) {
    if (node.op != "BatchNorm" || !graph.IsInput(node.inputs[1])) continue;
    const GraphInput& scale = graph.inputs()[graph.value(node.inputs[1]).index];
    if (scale.kind == InputKind::kFrozen && !constants.contains(scale.name)) names.insert(scale.name);
  }
  return names;
}

}  // namespace

absl::StatusOr<PreparedModel> ChooseWeights(const PrepareOptions& options, const ImportForwardFn& import,
                                            FixedTables* tables) {
  PreparedModel prepared;
  const auto choose = [&](const PrepareOptions& o) -> absl::Status {
    ASSIGN_OR_RETURN(prepared.model, import(o));
    ASSIGN_OR_RETURN(prepared.weights, ChooseTrainable(&prepared.model, o.trainable, tables));
    return EmbedFixedMasks(&prepared.model);
  };
  RETURN_IF_ERROR(choose(options));
  PrepareOptions frozen_options = options;
  frozen_options.import.frozen_scales = FrozenScales(prepared.model.graph, prepared.weights);
  if (!frozen_options.import.frozen_scales.empty()) RETURN_IF_ERROR(choose(frozen_options));
  return prepared;
}

absl::StatusOr<PreparedModel> PrepareWeights(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                             bool training) {
  FixedTables tables;
  const auto import = [&](const PrepareOptions& o) { return ImportForward(model, o, batch, training); };
  return ChooseWeights(options, import, &tables);
}

absl::StatusOr<PreparedModel> Prepare(const OnnxModel& model, const PrepareOptions& options, int64_t batch,
                                      bool training) {
  ASSIGN_OR_RETURN(PreparedModel prepared, PrepareWeights(model, options, batch, training));
  ASSIGN_OR_RETURN(prepared.loss, ChooseLoss(prepared.model, options.loss, options.labels));
  return prepared;
}

}  // namespace onnxtrain
