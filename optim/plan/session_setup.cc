#include "optim/plan/session_setup.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "backends/registry.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/onnx/interop/training_info.h"
#include "frontend/onnx/read/parsed.h"
#include "optim/loop/lr_schedule.h"
#include "optim/plan/input_plan.h"
#include "optim/plan/model_setup.h"
#include "optim/step/onnx_functions.h"
#include "optim/step/rules/rule.h"

namespace onnxtrain {
namespace {

absl::StatusOr<std::unique_ptr<Backend>> MakeTorch(const std::string& device, BackendOptions options) {
  if (device == "auto" && MayHaveGpu()) {
    options.device = "cuda:0";
    auto backend = CreateBackend("torch", options);
    if (backend.ok()) return backend;
  }
  options.device = device == "auto" ? "cpu" : device == "cuda" ? "cuda:0" : device;
  return CreateBackend("torch", options);
}

}  // namespace

RecomputeSpec MakeRecomputeSpec(const TrainConfig& config) {
  static const std::map<std::string, RecomputeMode> kModes = {{"none", RecomputeMode::kNone},
                                                              {"auto", RecomputeMode::kAuto},
                                                              {"sqrt", RecomputeMode::kSqrt},
                                                              {"all", RecomputeMode::kAll},
                                                              {"budget", RecomputeMode::kBudget}};
  return {.mode = kModes.at(config.gradient_checkpointing),
          .memory_budget = config.memory_budget,
          .offload = config.activation_offloading == "yes"};
}

namespace {

// Sets the extents that vary: lengths of texts, or sizes of pictures. Batches of several sizes are never one
// micro-batch.
void SetVariableExtents(const BoundData& data, SessionOptions* options) {
  for (const FeedSpec& feed : data.feeds) {
    if (feed.height_axis >= 0) options->variable_extents = 2, options->step_form = StepForm::kMicroAndApply;
    if (feed.variable || feed.height_axis >= 0)
      options->variable_inputs.push_back({feed.feed, std::max(feed.height_axis, feed.length_axis) + 1});
  }
  if (data.label.columns.size() != 1) return;
  const Column& label = data.dataset->columns()[data.label.columns[0]];
  if (label.variable || label.height_axis >= 0) options->variable_label_axis = std::max(label.height_axis, 0);
}

// Returns the first number of an initializer or of a Constant node, in which Paddle2ONNX keeps weights.
std::optional<double> FindFirstNumber(const OnnxModel& model, const std::string& name) {
  const HostTensor* value = model.Initializer(name);
  for (const ParsedNode& node : model.parsed().graph.nodes) {
    if (value != nullptr || node.op_type != "Constant" || std::ranges::count(node.outputs, name) == 0) continue;
    value = node.attrs.Tensor("value");
    const auto* floats = node.attrs.Find<std::vector<double>>("value_floats");
    if (floats != nullptr && !floats->empty()) return floats->front();
  }
  return value == nullptr || value->size() == 0 ? std::nullopt : std::optional(value->At(0));
}

// Returns true if running statistics of the model are those of data, not the zeros and ones that they begin with.
bool HasRunningStatistics(const OnnxModel& model) {
  return std::ranges::any_of(model.nodes(), [&](const OnnxModel::Node& node) {
    const bool normalizes = node.op == "BatchNormalization" && node.inputs.size() > 4;
    return normalizes && FindFirstNumber(model, node.inputs[4]).value_or(1) != 1;
  });
}

// Returns true if batches of a trained recognizer hold few pictures of one size, whose statistics would be poor.
bool HasPoorStatistics(const OnnxModel& model, const BoundData& data, const LossSpec& loss) {
  const bool sizes = std::ranges::any_of(data.feeds, [](const FeedSpec& feed) { return feed.height_axis >= 0; });
  return loss.alphabet != nullptr && sizes && HasRunningStatistics(model);
}

}  // namespace

absl::StatusOr<SessionOptions> MakeSessionOptions(const TrainConfig& config, const OnnxModel& model,
                                                  const BoundData& data, const LossSpec& loss, int64_t micro_batch) {
  SessionOptions options{.loss = loss,
                         .labels = data.label.info,
                         .metrics = config.metrics,
                         .trainable = MakeTrainableSpec(config),
                         .micro_batch = micro_batch,
                         .may_freeze_batch_norm = !IsSpecified(config, "batch_norm"),
                         .seed = static_cast<uint64_t>(config.seed),
                         .deterministic = config.deterministic,
                         .sync_batch_norm = config.sync_batch_norm};
  for (const auto& [key, label] : data.own_labels) options.loss.own_labels[key] = label.info;
  ASSIGN_OR_RETURN(options.import, MakeImportOptions(config, model, data));
  if (options.may_freeze_batch_norm && HasPoorStatistics(model, data, loss)) options.import.batch_norm_frozen = true;
  SetVariableExtents(data, &options);
  const ModelEdits& edits = model.edits();
  for (const LowRankUpdate& update : edits.low_rank) {
    for (const auto& [name, initial] : update.Trained()) options.trainable.adapters.push_back(name);
  }
  if (!edits.low_rank.empty())
    options.trainable.adapters.insert(options.trainable.adapters.end(), edits.whole.begin(), edits.whole.end());
  return options;
}

namespace {

absl::StatusOr<PreparedModel> PrepareAt(PreparedModels& models, const PrepareOptions& options, int64_t batch,
                                        bool training) {
  ASSIGN_OR_RETURN(PreparedModel prepared, models.Prepare(options, batch, training, true));
  RETURN_IF_ERROR(CheckLossBatch(prepared.model.graph, prepared.loss, batch));
  return prepared;
}

// Prepares for one sample, whatever shape the outputs have for a batch: some detectors squeeze it or merge it with
// another axis.
absl::StatusOr<PreparedModel> PrepareOneSample(PreparedModels& models, PrepareOptions* options, bool training) {
  PrepareOptions one = *options;
  ASSIGN_OR_RETURN(const auto imported, models.ImportForward(one, 1, training, false));
  AddOutputAxes(*imported, &one.import.batch_axes);
  ASSIGN_OR_RETURN(PreparedModel prepared, PrepareAt(models, one, 1, training));
  *options = std::move(one);
  return prepared;
}

}  // namespace

absl::StatusOr<PreparedModel> PrepareAtAnyBatch(PreparedModels& models, int64_t batch, bool training,
                                                PrepareOptions* options, int64_t* fixed_batch) {
  if (HasAddedAxis(options->import.batch_axes)) {
    *fixed_batch = 1;
    return PrepareOneSample(models, options, training);
  }
  const int64_t declared = DeclaredBatch(*models.model(), options->import);
  auto prepared = PrepareAt(models, *options, batch, training);
  const bool at_declared = batch == declared;
  if (prepared.ok() && (!at_declared || declared == 1)) return prepared;
  auto other = PrepareAt(models, *options, at_declared ? declared + 1 : declared, training);
  if (prepared.ok() && other.ok()) return prepared;
  if (prepared.ok() || other.ok()) {
    *fixed_batch = declared;
    return at_declared ? std::move(prepared) : std::move(other);
  }
  if (const int64_t fixed = models.FindFixedBatch(*options, prepared.status(), training); fixed > 0) {
    *fixed_batch = fixed;
    return PrepareAt(models, *options, fixed, training);
  }
  auto one = PrepareOneSample(models, options, training);
  if (!one.ok()) return prepared;
  *fixed_batch = 1;
  return one;
}

namespace {

// Freezes BatchNormalization in a model that is bound to a batch of 1, whose statistics do not estimate those of the
// data.
absl::StatusOr<PreparedModel> FreezeBatchNorm(PreparedModels& models, PreparedModel prepared, PrepareOptions* options) {
  const bool normalizes = models.model()->op_histogram().contains("BatchNormalization");
  if (!normalizes || options->import.batch_norm_frozen) return prepared;
  options->import.batch_norm_frozen = true;
  return PrepareAt(models, *options, 1, true);
}

}  // namespace

absl::StatusOr<PreparedModel> PrepareFor(PreparedModels& models, const BoundData& data, SessionOptions* options,
                                         bool training) {
  PrepareOptions prepare = MakePrepareOptions(*options);
  int64_t fixed_batch = data.sample_index_input.empty() ? 0 : data.dataset->size();
  auto prepared = fixed_batch > 0 ? PrepareAt(models, prepare, fixed_batch, training)
                                  : PrepareAtAnyBatch(models, options->micro_batch, training, &prepare, &fixed_batch);
  if (prepared.ok() && fixed_batch == 1 && training && options->may_freeze_batch_norm)
    prepared = FreezeBatchNorm(models, *std::move(prepared), &prepare);
  if (!prepared.ok()) {
    const bool of_labels = models.ImportForward(prepare, options->micro_batch, training, false).ok();
    if (!of_labels || data.label.text.empty()) return prepared;
    return Invalid(ToStd(prepared.status().message()), " (", data.label.text, ")",
                   data.warnings.empty() ? "" : StrCat("; ", data.warnings[0]));
  }
  options->import.batch_axes = std::move(prepare.import.batch_axes);
  options->import.batch_norm_frozen = prepare.import.batch_norm_frozen;
  if (fixed_batch > 0) options->micro_batch = options->fixed_batch = fixed_batch;
  return prepared;
}

std::string DescribeFixedBatch(int64_t fixed_batch) {
  if (fixed_batch == 0) return "";
  if (fixed_batch == 1) return "the model is bound to the batch of 1: it takes one sample at a time";
  return StrCat("the model is bound to the batch of ", fixed_batch, " that it was exported for");
}

absl::Status FixMicroBatch(const TrainConfig& config, const SessionOptions& options, BatchPlan* batch) {
  const int64_t fixed = options.fixed_batch;
  if (fixed == 0) return absl::OkStatus();
  const std::string why = DescribeFixedBatch(fixed);
  if (config.max_tokens_per_batch > 0) return Invalid("`max_tokens_per_batch`: ", why, " (say `batch_size`)");
  if (config.batch_size == 0 && config.gradient_accumulation_steps > 0)
    batch->global = fixed * config.gradient_accumulation_steps;
  if (batch->global % fixed != 0 && config.batch_size == 0)
    batch->global = std::max<int64_t>(batch->global / fixed, 1) * fixed;
  if (batch->global % fixed != 0)
    return Invalid("`batch_size` ", batch->global, ": ", why, ", which does not divide it");
  if (config.micro_batch_size > 0 && config.micro_batch_size != fixed)
    return Invalid("`micro_batch_size` ", config.micro_batch_size, ": ", why);
  const int64_t steps = batch->global / fixed;
  if (config.gradient_accumulation_steps > 0 && config.gradient_accumulation_steps != steps)
    return Invalid("`gradient_accumulation_steps` ", config.gradient_accumulation_steps, ": ", why);
  *batch = {batch->global, fixed, steps};
  return absl::OkStatus();
}

absl::Status KeepWholeBatches(int64_t fixed_batch, std::shared_ptr<const Dataset>* samples) {
  if (fixed_batch < 2 || (*samples)->size() % fixed_batch == 0) return absl::OkStatus();
  const int64_t whole = (*samples)->size() / fixed_batch * fixed_batch;
  if (whole == 0)
    return Invalid(DescribeFixedBatch(fixed_batch), ", and there are only ", (*samples)->size(), " samples");
  *samples = SliceDataset(*samples, 0, whole);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const TrainConfig& config) {
  const BackendOptions options{.device = "cpu",
                               .threads = config.threads > 0 ? static_cast<int>(config.threads) : CpuCount(),
                               .tf32 = config.mixed_precision == "tf32"};
  if (IsPluginPath(config.backend)) {
    BackendOptions plugin = options;
    plugin.device = config.device;
    return CreateBackend(config.backend, plugin);
  }
  if (config.backend == "cpu" || (config.backend == "auto" && config.device == "cpu"))
    return CreateBackend("cpu", options);
  if (config.backend == "torch" || config.device != "auto") return MakeTorch(config.device, options);
  return CreateBackend("auto", options);
}

}  // namespace onnxtrain
