#include "optim/plan/model_setup.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/onnx/edit/chosen_scores.h"
#include "frontend/onnx/interop/training_info.h"
#include "frontend/ops/import/onnx_import.h"
#include "frontend/plugin/operators.h"
#include "optim/config/loss_text.h"
#include "optim/config/training_settings.h"
#include "optim/plan/constant_inputs.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/input_plan.h"
#include "optim/step/onnx_functions.h"

namespace onnxtrain {
namespace {

constexpr int64_t kDefaultBatch = 32;

std::set<std::string> FreeDimNames(const OnnxModel& model) {
  std::set<std::string> names;
  for (const ModelInput& input : model.inputs()) names.insert(input.dim_names.begin(), input.dim_names.end());
  names.erase("");
  return names;
}

bool HoldsWeights(const OnnxModel& model) {
  const std::vector<std::string> names = model.InitializerNames();
  return std::ranges::any_of(names, [&](const std::string& name) {
    const HostTensor* tensor = model.Initializer(name);
    return tensor != nullptr && tensor->size() > 1 && (IsFloat(tensor->dtype()) || IsInteger(tensor->dtype()));
  });
}

// Returns true if the operand can only be a weight: "fc.weight" of Gemm, but no operand of an Add.
bool ReadsAsWeight(const OnnxModel::Node& node, size_t input) {
  const OnnxOp* op = node.op.find('.') == std::string::npos ? FindOnnxOp("", node.op) : nullptr;
  if (op == nullptr || input == 0) return false;
  const bool elementwise = (op->traits.weight_inputs & 1) != 0 && !op->traits.classifier;
  return !elementwise && (op->traits.weight_inputs >> input & 1) != 0;
}

// Fails on a model without weights: some tools write the graph with the weights as inputs.
absl::Status CheckHoldsWeights(const OnnxModel& model) {
  if (HoldsWeights(model)) return absl::OkStatus();
  std::set<std::string> names;
  for (const ModelInput& input : model.inputs()) names.insert(input.name);
  std::vector<std::string> weights;
  for (const OnnxModel::Node& node : model.nodes()) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (ReadsAsWeight(node, i) && names.erase(node.inputs[i]) > 0) weights.push_back(node.inputs[i]);
    }
  }
  if (weights.empty()) return absl::OkStatus();
  return Invalid(model.path(), ": holds no weights: its nodes read them from the inputs '",
                 absl::StrJoin(weights, "', '"), "' (export the model with its weights as initializers)");
}

absl::Status CheckConstantsOnly(const TrainConfig& config, const std::map<std::string, std::string>& constants) {
  for (const std::string& text : config.input) {
    if (!constants.contains(text.substr(0, text.find('='))))
      return Invalid("`input` ", text, ": has no effect: there is no `data` (a constant is a number, for an input ",
                     "without a batch axis, or @FILE.npy)");
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelEdits> ParseTies(const TrainConfig& config) {
  ModelEdits edits;
  for (const std::string& text : config.tie) {
    if (text == "none") {
      edits.tie_stored_twice = false;
      continue;
    }
    const auto pair = ParsePair(text, "A=B");
    if (!pair.ok()) return Invalid("`tie`: expected A=B, the names of two weights, or none, got '", text, "'");
    edits.ties.push_back({.weight = pair->first, .copy = pair->second});
  }
  return edits;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadModel(const TrainConfig& config) {
  RETURN_IF_ERROR(Annotate(LoadPlugins(config.plugin), "`plugin` "));
  if (config.model.empty()) return Invalid("`model`: missing (which .onnx file?)");
  ASSIGN_OR_RETURN(ModelEdits edits, ParseTies(config));
  return OnnxModel::Load(config.model, std::move(edits));
}

// This check precedes the binding of data: an unknown operator may have inputs that no data fits.
absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadRunnableModel(const TrainConfig& config) {
  ASSIGN_OR_RETURN(auto model, LoadModel(config));
  RETURN_IF_ERROR(CheckRunnable(config, *model));
  return model;
}

namespace {

// Explains that no output can be trained.
std::string ExplainGradientEnd(const ChosenScores& scores) {
  if (scores.end.empty()) return "";
  std::string text = StrCat(scores.end, "ends the gradient of its outputs");
  if (!scores.compared.empty())
    return StrCat(text, ", and compares ", scores.compared,
                  ", which both learn; train one of them with `logits`, or a model that outputs their difference");
  if (scores.after.empty()) return text;
  return StrCat(text, ", and ", scores.after,
                "does not output its choice; train the scores in front of it with `logits` ", scores.value);
}

// Trains on the scores before the final selection (ArgMax, a comparison …) if no term names its scores and no output of
// the model has a gradient because of that selection.
void InferLogits(const OnnxModel& model, LossSpec* spec) {
  const auto terms = ParseLoss(spec->name);
  const auto names_none = [](const LossTermSpec& t) {
    return t.output.empty() && t.file.empty() && (t.function == nullptr || t.function->parts != nullptr);
  };
  if (!terms.ok() || !std::ranges::all_of(*terms, names_none)) return;
  const ChosenScores scores = FindChosenScores(model);
  const bool trains_choice = !scores.value.empty() && scores.after.empty();
  const std::string sign = scores.smallest ? ", negated because the smallest is chosen" : "";
  if (trains_choice && scores.smallest) spec->negated = scores.value;
  if (trains_choice && (spec->logits.empty() || spec->logits == scores.value))
    spec->least_probability = scores.least_probability;
  const std::string limit = !scores.limit.has_value()
                                ? ""
                                : StrCat(" and compares with ", FormatNumber(*scores.limit),
                                         ", which predictions and metrics do, and the loss does not");
  if (!spec->logits.empty()) {
    if (spec->logits == spec->negated) spec->logits_why = sign;
    return;
  }
  if (!trains_choice) {
    spec->gradient_end = ExplainGradientEnd(scores);
    return;
  }
  spec->logits = scores.value;
  spec->logits_why = StrCat(
      sign, ", in front of ", scores.end, "which has no gradient", limit,
      scores.others.empty() ? "" : StrCat("; others: '", absl::StrJoin(scores.others, "', '"), "'"), " (`logits`)");
}

}  // namespace

LossSpec MakeOutputSpec(const TrainConfig& config, const OnnxModel& model) {
  LossSpec spec{.name = config.loss.empty() ? "auto" : config.loss, .logits = config.logits};
  InferLogits(model, &spec);
  return spec;
}

absl::Status CheckRunnable(const TrainConfig& config, const OnnxModel& model) {
  const LossSpec loss = MakeOutputSpec(config, model);
  ASSIGN_OR_RETURN(const std::vector<std::string> outputs, LossOutputs(model, loss));
  RETURN_IF_ERROR(CheckOperators(model, outputs));
  return CheckHoldsWeights(model);
}

absl::StatusOr<std::map<std::string, int64_t>> ParseDims(const TrainConfig& config, const OnnxModel& model) {
  const std::set<std::string> known = FreeDimNames(model);
  std::map<std::string, int64_t> dims;
  for (const std::string& text : config.dim) {
    const auto pair = ParsePair(text, "NAME=N");
    const auto value = pair.ok() ? ParseInt(pair->second) : absl::StatusOr<int64_t>(pair.status());
    if (!value.ok() || *value < 1) return Invalid("`dim`: expected NAME=N with N of at least 1, got '", text, "'");
    if (!known.contains(pair->first)) {
      std::string names;
      for (const std::string& name : known) StrAppend(&names, " '", name, "'");
      return Invalid("`dim` ", text, ": no input has a dimension of that name; there are",
                     names.empty() ? " none" : names);
    }
    if (!dims.emplace(pair->first, *value).second) return Invalid("`dim` ", pair->first, ": given twice");
  }
  return dims;
}

namespace {

// Returns the loss of the model's training_info as a name; auto if there is none.
absl::StatusOr<std::string> GetOwnLoss(const OnnxModel& model) {
  ASSIGN_OR_RETURN(const std::optional<TrainingInfo> info, ReadTrainingInfo(model));
  if (!info.has_value() || !info->problem.empty()) return "auto";
  return info->loss.empty() ? StrCat("output:", info->output) : StrCat("onnx:", kOwnTrainingInfo);
}

}  // namespace

absl::StatusOr<LossSpec> MakeLossSpec(const TrainConfig& given, const OnnxModel& model,
                                      const std::optional<Preprocess>& before) {
  const TrainConfig config = WithTrainingSettings(given, model);
  LossSpec spec{.name = config.loss.empty() ? "auto" : config.loss,
                .logits = config.logits,
                .ignore_index = config.ignore_index,
                .label_smoothing = config.label_smoothing,
                .class_weights = config.class_weights,
                .soft_labels = MixesSamples(config)};
  if (config.loss.empty() && config.logits.empty() && before.has_value() && !before->loss.empty()) {
    spec.name = before->loss;
    const auto& outputs = model.outputs();
    const bool known = std::find(outputs.begin(), outputs.end(), before->output) != outputs.end();
    if (known && !spec.name.starts_with("output:")) spec.logits = before->output;
  }
  if (spec.name == "auto" && config.logits.empty()) {
    ASSIGN_OR_RETURN(spec.name, GetOwnLoss(model));
  }
  InferLogits(model, &spec);
  RETURN_IF_ERROR(LoadOnnxLosses(model, &spec));
  return spec;
}

TrainableSpec MakeTrainableSpec(const TrainConfig& config) { return {.train = config.train, .freeze = config.freeze}; }

namespace {

// Returns the options that do not depend on the inputs.
absl::StatusOr<ImportOptions> MakeModelOptions(const TrainConfig& config, const OnnxModel& model) {
  const std::map<std::string, int> ops = model.op_histogram();
  RETURN_IF_ERROR(RefuseUnused(
      config, {.has_batch_norm = ops.contains("BatchNormalization"), .has_dropout = ops.contains("Dropout")}));
  ImportOptions import{.batch_norm_frozen = config.batch_norm == "frozen", .dropout = config.dropout};
  import.constant_factors = config.train.empty();  // with `train`, they are weights that it may name
  ASSIGN_OR_RETURN(import.dim_values, ParseDims(config, model));
  return import;
}

}  // namespace

absl::StatusOr<ImportOptions> MakeImportOptions(const TrainConfig& config, const OnnxModel& model) {
  ASSIGN_OR_RETURN(ImportOptions import, MakeModelOptions(config, model));
  const LossSpec loss = MakeOutputSpec(config, model);
  InputRequest request{
      .dims = import.dim_values, .constants = FindConstantTexts(config, model), .sizes = config.data.empty()};
  request.batch_axis = config.batch_axis != "none";
  if (config.data.empty()) RETURN_IF_ERROR(CheckConstantsOnly(config, request.constants));
  if (const auto outputs = LossOutputs(model, loss); outputs.ok()) request.outputs = *outputs;
  ASSIGN_OR_RETURN(InputPlan plan, PlanInputs(model, request));
  import.input_shapes = std::move(plan.input_shapes);
  import.fixed_inputs = std::move(plan.fixed);
  import.batch_axes = std::move(plan.batch_axes);
  return import;
}

absl::StatusOr<ImportOptions> MakeImportOptions(const TrainConfig& config, const OnnxModel& model,
                                                const BoundData& data) {
  ASSIGN_OR_RETURN(ImportOptions import, MakeModelOptions(config, model));
  return ImportWithData(std::move(import), data);
}

ImportOptions ImportWithData(ImportOptions import, const BoundData& data) {
  import.batch_axes = data.batch_axes;
  import.input_shapes = data.input_shapes;
  import.fixed_inputs = data.fixed_inputs;
  import.packed = data.packed;
  return import;
}

std::map<std::string, std::string> FindConstantTexts(const TrainConfig& config, const OnnxModel& model) {
  std::map<std::string, std::string> texts;
  if (config.input.empty()) return texts;
  const BatchAxes axes = GuessBatchAxes(model, model.inputs()).front();
  for (const std::string& text : config.input) {
    const auto pair = ParsePair(text, "MODEL_INPUT=COLUMN[,…]");
    if (!pair.ok()) continue;
    const auto input = std::ranges::find(model.inputs(), pair->first, &ModelInput::name);
    const auto axis = axes.find(pair->first);
    const bool batchless = input != model.inputs().end() && input->has_shape &&
                           (input->dims.empty() || (axis != axes.end() && axis->second == kNoBatchAxis));
    const bool number = batchless && ParseNumber(pair->second).ok();
    if (pair->second.starts_with("@") || number) texts.emplace(pair->first, pair->second);
  }
  return texts;
}

int64_t ExportedBatch(const OnnxModel& model) {
  const std::vector<ModelInput> inputs = WithoutFixed(model.inputs(), FindDefaultInputs(model.inputs()));
  if (AreOneSample(inputs) || ShareVectors(inputs)) return 1;
  return ExportedBatch(model, GuessBatchAxes(model, inputs).front());
}

int64_t ExportedBatch(const OnnxModel& model, const BatchAxes& axes) {
  if (HasAddedAxis(axes)) return 1;
  return DeclaredBatch(model, {.fixed_inputs = FindDefaultInputs(model.inputs()).fixed, .batch_axes = axes});
}

namespace {

int64_t ChooseGlobalBatch(const TrainConfig& config, int64_t exported) {
  return config.batch_size > 0 ? config.batch_size : exported > 1 ? exported : kDefaultBatch;
}

}  // namespace

int64_t GlobalBatchSize(const TrainConfig& config, const OnnxModel& model) {
  return ChooseGlobalBatch(config, ExportedBatch(model));
}

int64_t GlobalBatchSize(const TrainConfig& config, const OnnxModel& model, const BatchAxes& axes) {
  return ChooseGlobalBatch(config, ExportedBatch(model, axes));
}

RunFacts MakeLossFacts(const LossChoice& loss) {
  const auto takes = [&](const char* field) {
    return std::ranges::any_of(loss.terms, [&](const LossTerm& term) {
      return term.form != LabelForm::kElements && term.function->takes.find(field) != std::string::npos;
    });
  };
  return {.subject = loss.name,
          .takes_label_smoothing = takes("label_smoothing"),
          .takes_ignore_index = takes("ignore_index"),
          .takes_class_weights = takes("class_weights"),
          .takes_reference = std::ranges::any_of(
              loss.terms, [](const LossTerm& term) { return term.function != nullptr && term.function->reference; })};
}

RunFacts MakeRunFacts(const OnnxModel& model, const LossChoice& loss) {
  RunFacts facts = MakeLossFacts(loss);
  facts.subject.clear();
  facts.config = ConfigState::kFinal;
  const auto ops = model.op_histogram();
  facts.has_batch_norm = facts.has_statistics = ops.contains("BatchNormalization");
  facts.has_dropout = ops.contains("Dropout");
  return facts;
}

}  // namespace onnxtrain
