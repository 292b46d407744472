#include "optim/plan/fed_training.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "optim/config/training_settings.h"
#include "optim/config/unused_fields.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/surgery.h"
#include "optim/plan/synthetic_data.h"
#include "optim/plan/threads.h"
#include "optim/plan/value_checks.h"

namespace onnxtrain {
namespace {

// Fields of the loop, the loader and evaluations, which the program runs itself.
constexpr const char* kLoopFields[] = {
    "log_every", "eval_every", "max_time", "num_workers",  "prefetch_factor",         "decode_scaling", "lr_find",
    "auto",      "drop_last",  "metrics",  "on_nonfinite", "early_stopping_patience", "monitor",        "init_from"};

absl::Status CheckFedConfig(const TrainConfig& config) {
  RETURN_IF_ERROR(Validate(config));
  RETURN_IF_ERROR(CheckEffectsWithoutData(config));
  for (const char* field : kLoopFields) {
    if (IsSpecified(config, field)) return Invalid("`", field, "`: has no effect: there is no `data`");
  }
  if (config.lr_scheduler.starts_with("plateau"))
    return Invalid("`lr_scheduler` plateau: there is no evaluation data (`eval_data`, `eval_split`)");
  if (config.max_steps == 0 && config.lr_scheduler != "constant")
    return Invalid("`lr_scheduler` ", config.lr_scheduler, ": of how many updates? (`max_steps`)");
  if (config.max_steps == 0 && config.warmup > 0 && config.warmup < 1)
    return Invalid("`warmup` ", config.warmup, ": a share of how many updates? (`max_steps`)");
  return absl::OkStatus();
}

// As in a run without evaluation data.
absl::Status CheckRunEffects(const TrainConfig& config, const OnnxModel& model, const LossChoice& loss) {
  const auto ops = model.op_histogram();
  return CheckEffects(config, {.has_data = false,
                               .has_eval = false,
                               .optimizer = config.optimizer,
                               .momentum = MakeOptimizer(config).momentum,
                               .scheduler = config.lr_scheduler.substr(0, config.lr_scheduler.find(':')),
                               .weight_decay = config.weight_decay,
                               .scales_lr = config.lr_scale != "none",
                               .loss_takes = LossTakes(loss),
                               .has_images = false,
                               .has_pictures = false,
                               .has_sounds = false,
                               .has_batch_norm = ops.contains("BatchNormalization"),
                               .has_dropout = ops.contains("Dropout"),
                               .fp16 = config.mixed_precision == "fp16"});
}

absl::Status SetShapes(const OnnxModel& model, const FedSample& sample, BoundData* bound) {
  for (const auto& [name, type] : sample.inputs) {
    const auto input = std::ranges::find(model.inputs(), name, &ModelInput::name);
    if (input == model.inputs().end()) return Invalid("'", name, "' is no input of ", model.path());
    Shape shape = type.shape;
    shape.insert(shape.begin(), -1);
    const auto planned = bound->input_shapes.find(name);
    if (planned == bound->input_shapes.end())
      return Invalid("input '", name, "' has no batch axis: it is a constant (`input` ", name, "=N or @FILE.npy)");
    const bool fits = planned->second.size() == shape.size();
    if (!fits) return Invalid("input '", name, "': a sample of ", ToString(type), " has another rank than the model's");
    planned->second = std::move(shape);
  }
  return absl::OkStatus();
}

// Labels of unknown values: integers are classes.
LabelInfo DescribeLabel(const Type& type) {
  return {.present = true, .sample = type, .min_value = 0, .max_value = IsFloat(type.dtype) ? 0 : 2};
}

void SetLabels(const FedSample& sample, BoundData* bound) {
  for (const auto& [name, type] : sample.labels)
    (name == kFedLabel ? bound->label : bound->own_labels[name]).info = DescribeLabel(type);
}

absl::StatusOr<BoundData> Bind(const TrainConfig& config, const OnnxModel& model, const FedSample& sample) {
  ASSIGN_OR_RETURN(const ImportOptions import, MakeImportOptions(config, model));
  BoundData bound{
      .batch_axes = import.batch_axes, .input_shapes = import.input_shapes, .fixed_inputs = import.fixed_inputs};
  RETURN_IF_ERROR(SetShapes(model, sample, &bound));
  SetLabels(sample, &bound);
  return bound;
}

absl::Status CheckLabelNames(const FedSample& sample, const LossChoice& loss) {
  for (const auto& [name, type] : sample.labels) {
    const std::string key = name == kFedLabel ? "" : name;
    if (std::ranges::find(loss.feeds, key, &LossFeed::label) == loss.feeds.end())
      return Invalid("'", name, "' is neither an input of the model nor a label of loss ", loss.name);
  }
  return absl::OkStatus();
}

std::vector<FeedSpec> ListInputs(const PreparedModel& prepared) {
  std::vector<FeedSpec> specs;
  for (const GraphInput& input : prepared.model.graph.inputs()) {
    if (input.kind != InputKind::kFeed || input.name == prepared.model.random_key) continue;
    Type sample = prepared.model.graph.type(input.value);
    if (!sample.shape.empty()) sample.shape.erase(sample.shape.begin());
    specs.push_back({.feed = input.name, .sample = std::move(sample)});
  }
  AddValueChecks(prepared.model, &specs);
  return specs;
}

absl::Status CheckTrains(const PreparedModel& prepared) {
  const auto trained = [](const WeightDecision& w) { return w.trained; };
  return std::ranges::any_of(prepared.weights, trained) ? absl::OkStatus()
                                                        : Invalid("nothing to train: no weight is trainable");
}

// Adds how the sizes of inputs are said.
absl::Status NameFreeDims(const absl::Status& status, const OnnxModel& model, const SessionOptions& options) {
  return {status.code(), StrCat(status.message(), DescribeFreeDims(model, options.import.dim_values))};
}

// Has the extents of some axes differ between batches.
absl::Status SetVarying(const FedSample& sample, SessionOptions* options, FedBatches* batches) {
  Shape greatest;
  for (const auto& [name, axes] : sample.varying) {
    const bool is_input = sample.inputs.contains(name);
    const Shape& shape = (is_input ? sample.inputs : sample.labels).at(name).shape;
    if (axes.size() > 2 || axes.back() - axes.front() + 1 != axes.size())
      return Invalid("'", name, "': one extent may vary, or two one behind the other");
    const auto begin = shape.begin() + static_cast<int64_t>(axes.front());
    const Shape own(begin, begin + static_cast<int64_t>(axes.size()));
    if (!greatest.empty() && own != greatest)
      return Invalid("'", name, "' varies up to ", ToString(own), ", another tensor up to ", ToString(greatest));
    greatest = own;
    if (is_input) {
      options->variable_inputs.push_back({name, static_cast<int>(axes.front()) + 1});
    } else if (name == kFedLabel) {
      options->variable_label_axis = static_cast<int>(axes.front());
    } else {
      return absl::UnimplementedError(StrCat("'", name, "': only inputs and '", kFedLabel, "' may vary"));
    }
    batches->Vary(name, axes.front(), axes.size());
  }
  if (greatest.empty()) return absl::OkStatus();
  if (options->variable_inputs.empty()) return Invalid("labels vary only where an input does");
  options->variable_extents = greatest.size();
  options->step_form = StepForm::kMicroAndApply;
  return absl::OkStatus();
}

// The model after surgery, with the loss that is asked for.
absl::StatusOr<LossSpec> ChangeModel(const TrainConfig& config, std::shared_ptr<const OnnxModel>* model,
                                     std::vector<std::string>* fresh, std::vector<std::string>* notes) {
  ASSIGN_OR_RETURN(LossSpec loss, MakeLossSpec(config, **model, std::nullopt));
  if (!HasSurgery(config)) return loss;
  ASSIGN_OR_RETURN(Surgery surgery, ApplySurgery(config, *model, nullptr, loss.logits));
  *model = std::move(surgery.model);
  *fresh = std::move(surgery.fresh);
  *notes = std::move(surgery.lines);
  if (!surgery.logits.empty()) loss.logits = surgery.logits;
  return loss;
}

}  // namespace

absl::StatusOr<FedTraining> PrepareFedTraining(const TrainConfig& given, std::shared_ptr<const OnnxModel> model,
                                               const FedSample& sample, const BackendFactory& make_backend) {
  RETURN_IF_ERROR(CheckFedConfig(given));
  const TrainConfig config = WithTrainingSettings(given, *model);
  RETURN_IF_ERROR(CheckRunnable(config, *model));
  FedTraining training{.config = config};
  std::vector<std::string> fresh;
  ASSIGN_OR_RETURN(const LossSpec loss, ChangeModel(config, &model, &fresh, &training.notes));
  training.models = std::make_shared<PreparedModels>(model);
  ASSIGN_OR_RETURN(const BoundData bound, Bind(config, *model, sample));
  ASSIGN_OR_RETURN(training.batch, PlanBatch(config, GlobalBatchSize(config, *model, bound.batch_axes)));
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(config, *model, bound, loss, training.batch.micro));
  auto prepared = PrepareFor(*training.models, bound, &options, true);
  if (!prepared.ok()) return NameFreeDims(prepared.status(), *model, options);
  RETURN_IF_ERROR(CheckLabelNames(sample, prepared->loss));
  RETURN_IF_ERROR(CheckTrains(*prepared));
  RETURN_IF_ERROR(CheckRunEffects(config, *model, prepared->loss));
  RETURN_IF_ERROR(FixMicroBatch(config, options, &training.batch));
  ASSIGN_OR_RETURN(training.optimizer,
                   ChooseOptimizer(config, *model, *prepared, fresh, training.batch.global, config.max_steps));
  training.optimizer.schedule.host_factor = true;
  options.optimizer = training.optimizer.spec;
  options.schedule = training.optimizer.schedule;
  options.recompute = MakeRecomputeSpec(config);
  training.batches = FedBatches(ListFedTensors(ListInputs(*prepared), prepared->loss, config.ignore_index));
  RETURN_IF_ERROR(SetVarying(sample, &options, &training.batches));
  training.notes.push_back(prepared->loss.explanation);
  ASSIGN_OR_RETURN(training.backend, MakeBackendForModel(training.models, options, make_backend, &training.config));
  ASSIGN_OR_RETURN(training.precision, ChoosePrecisionAndBatch(config, training.models, *training.backend,
                                                               training.batch.global, &training.batch, &options));
  ASSIGN_OR_RETURN(training.session, Session::Create(training.models, training.backend.get(), std::move(options)));
  return training;
}

}  // namespace onnxtrain
