#include "optim/plan/training_run.h"

#include <algorithm>

#include "frontend/base/status.h"
#include "frontend/data/bind/data_view.h"
#include "frontend/onnx/interop/training_info.h"
#include "frontend/onnx/recover/rows.h"
#include "optim/config/training_settings.h"
#include "optim/plan/data_hints.h"
#include "optim/plan/folders.h"
#include "optim/plan/free_dims.h"
#include "optim/plan/label_names.h"
#include "optim/plan/language_data.h"
#include "optim/plan/micro_batch.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/open_data.h"
#include "optim/plan/open_session.h"
#include "optim/plan/pixel_hints.h"
#include "optim/plan/run_memory.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/surgery.h"
#include "optim/plan/synthetic_data.h"
#include "optim/plan/threads.h"
#include "optim/plan/train_data.h"
#include "optim/plan/value_checks.h"
#include "optim/record/telemetry/format.h"
#include "optim/step/onnx_functions.h"

namespace onnxtrain {
namespace {

constexpr int64_t kSyntheticSteps = 20;

std::optional<int64_t> IfSet(int64_t x) { return x > 0 ? std::optional(x) : std::nullopt; }

int64_t SyntheticSteps(const TrainConfig& config) { return config.max_steps > 0 ? config.max_steps : kSyntheticSteps; }

absl::Status ApplySurgeryToData(const TrainConfig& config, const BoundData* bound, TrainingData* data) {
  if (!HasSurgery(config)) return absl::OkStatus();
  ASSIGN_OR_RETURN(Surgery surgery, ApplySurgery(config, data->model, bound, data->loss.logits));
  data->model = std::move(surgery.model);
  data->surgery.insert(data->surgery.end(), surgery.lines.begin(), surgery.lines.end());
  data->fresh = std::move(surgery.fresh);
  if (!surgery.logits.empty()) data->loss.logits = surgery.logits;
  return absl::OkStatus();
}

absl::Status MakeSyntheticDataset(const TrainConfig& config, std::optional<int64_t> wanted, TrainingData* data) {
  data->synthetic = true;
  data->loss.sum_outputs = true;
  data->train_text = "synthetic";
  RETURN_IF_ERROR(ApplySurgeryToData(config, nullptr, data));
  data->models = std::make_shared<PreparedModels>(data->model);
  ASSIGN_OR_RETURN(const ImportOptions import, MakeImportOptions(config, *data->model));
  const int64_t usual = GlobalBatchSize(config, *data->model, import.batch_axes);
  data->synthetic_batch =
      wanted ? *wanted : SyntheticBatchSize(config, *data->models, {.import = import, .loss = data->loss});
  ASSIGN_OR_RETURN(const BatchPlan batch, PlanBatch(config, data->synthetic_batch));
  ASSIGN_OR_RETURN(data->train.bound,
                   MakeSyntheticData(*data->models, import, data->loss, SyntheticSteps(config) * batch.global,
                                     batch.micro, config.seed));
  if (!wanted && batch.global < usual) {
    data->train.bound.notes.push_back(
        StrCat("batches of ", batch.global, " samples: a step of ", usual, " would take long (`batch_size`)"));
  }
  return absl::OkStatus();
}

void HoldOutEvalData(TrainingData* data) {
  data->eval = data->train;
  const SplitRows& rows = data->train.held_out->rows;
  data->train.bound.dataset = SubsetDataset(data->train.bound.dataset, rows.train);
  data->eval.bound.dataset = SubsetDataset(data->eval.bound.dataset, rows.eval);
  data->eval_text = data->train.held_out->text;
  data->eval_is_part_of_train = true;
}

absl::Status OpenEvalData(const TrainConfig& config, TrainingData* data) {
  if (data->train.held_out.has_value()) {
    HoldOutEvalData(data);
    return absl::OkStatus();
  }
  const bool folders = !FindFolderColumns(config, std::nullopt, config.data, true).empty();
  if (config.eval_data.empty() && (folders || !HasEvalFiles(config.data))) return absl::OkStatus();
  data->eval_text = config.eval_data.empty() ? config.data : config.eval_data;
  const DataRequest request{.path = data->eval_text,
                            .field = "eval_data",
                            .eval_split = true,
                            .same_columns = true,
                            .text = data->train.text};
  ASSIGN_OR_RETURN(data->eval, OpenData(config, *data->model, DescribeBinding(data->train), request, data->loss));
  return absl::OkStatus();
}

void SetInterval(const Interval& interval, int64_t per_epoch, int64_t* steps, double* seconds) {
  *steps = IntervalSteps(interval, per_epoch);
  if (interval.unit == Interval::Unit::kSeconds) *seconds = interval.value;
}

// Refuses to train what is left of a model whose products hold weights without a gradient, unless that was asked for.
absl::Status CheckStoredForms(const TrainConfig& config, const OnnxModel& model) {
  const std::string untrained = FindUntrainedWeights(model);
  if (untrained.empty() || !config.train.empty() || !config.freeze.empty()) return absl::OkStatus();
  return Invalid("the weights of ", untrained,
                 " are stored as integers that cannot be trained: train the float model and quantize it again, or name "
                 "the other weights that are to be trained (`train`)");
}

// Checks what would end the run at its first step.
absl::Status CheckWork(const TrainConfig& config, const OnnxModel& model, const PreparedModel& prepared,
                       int64_t samples, int64_t global_batch) {
  const auto trained = [](const WeightDecision& w) { return w.trained; };
  if (std::none_of(prepared.weights.begin(), prepared.weights.end(), trained)) {
    return Invalid("nothing to train: ", prepared.weights.empty()
                                             ? "the model has no weights"
                                             : StrCat("no weight is trainable ('", prepared.weights[0].name,
                                                      "': ", prepared.weights[0].why, ")"));
  }
  RETURN_IF_ERROR(CheckStoredForms(config, model));
  if (config.drop_last && samples < global_batch)
    return Invalid("`drop_last`: ", samples, " samples make no batch of ", global_batch, " (`batch_size`)");
  return absl::OkStatus();
}

bool LengthsDiffer(const Dataset& data) {
  int64_t i = 1;
  while (i < data.size() && data.Length(i) == data.Length(0)) ++i;
  return i < data.size();
}

}  // namespace

RunFacts MakeRunFacts(const TrainConfig& config, const TrainingData& data, const LossChoice& loss) {
  RunFacts facts = MakeRunFacts(*data.model, loss);
  facts.has_data = !data.synthetic;
  facts.has_eval = data.has_eval();
  facts.has_images = data.train.bound.has_images;
  facts.has_pictures = data.train.pictures.has_value();
  facts.has_sounds = data.train.audio.has_value();
  facts.augments = facts.has_pictures || data.train.arrays.has_value();
  facts.lengths_differ = !config.length_grouping || LengthsDiffer(*data.train.bound.dataset);
  return facts;
}

namespace {

// Whatever compares evaluations needs some, and one of their metrics. Sets options->monitor and what depends on it.
absl::Status SetMonitor(const TrainConfig& config, const LossChoice& loss, bool has_eval, TrainOptions* options) {
  if (!ComparesEvaluations(config)) return absl::OkStatus();
  if (!has_eval)
    return Invalid(config.lr_scheduler.starts_with("plateau") ? "`lr_scheduler` plateau" : "`export_weights` best",
                   ": there is no evaluation data (`eval_data`, `eval_split`)");
  const std::vector<std::string> metrics = EvalNames(loss, config.metrics);
  const size_t colon = config.monitor.rfind(':');
  const std::string name = config.monitor.substr(0, colon),
                    to = colon == std::string::npos ? "" : config.monitor.substr(colon + 1);
  const bool known = name == "loss" || (name == "accuracy" && loss.classes) ||
                     std::find(metrics.begin(), metrics.end(), name) != metrics.end();
  if (!known || (to != "min" && to != "max" && !to.empty())) {
    return Invalid("`monitor` ", config.monitor, ": expected loss, ", loss.classes ? "accuracy, " : "",
                   "or one of `metrics`, with :min or :max behind it");
  }
  const auto is = [&](const char* metric) { return name.starts_with(metric); };
  const bool falls = name == "loss" || is("mae") || is("rmse") || is("perplexity") || is("bits_per");
  options->monitor = name;
  options->monitor_max = to.empty() ? !falls : to == "max";
  options->patience = config.early_stopping_patience;
  options->save_best = config.keep_best > 0 || config.export_weights == "best";
  return absl::OkStatus();
}

const ModelPart& PartOf(const SessionOptions& options) {
  return options.tensor.on() ? options.tensor : options.pipeline;
}

// Pictures that keep their sizes are grouped, unless that was decided: a batch of many sizes takes long.
void ChooseGrouping(const BoundData& data, TrainConfig* config) {
  const bool open = !IsSpecified(*config, "length_grouping") && config->shuffle && SizeMultiple(data) > 0;
  if (open) config->length_grouping = LengthsDiffer(*data.dataset);
}

absl::Status CheckVocabulary(const OpenedData& data, const TrainData& train) {
  const auto ids = std::ranges::find(train.specs, data.bound.token_input, &FeedSpec::feed);
  const bool none = ids == train.specs.end() || data.text.tokenizer == nullptr;
  return none ? absl::OkStatus() : CheckVocabulary(*data.text.tokenizer, ids->range);
}

// Of training and evaluation; adds to the warnings of the data.
absl::Status LeaveOutBadSamples(const PreparedModel& prepared, const SessionOptions& options, TrainingRun* run) {
  for (OpenedData* data : {&run->data.train, &run->data.eval}) {
    if (data->bound.dataset == nullptr) continue;
    if (run->data.synthetic) continue;
    ASSIGN_OR_RETURN(const auto sequences, MakeSequenceChecks(*run->data.models, options, prepared, data->bound));
    ASSIGN_OR_RETURN(const LeftOut left_out, LeaveOutBadSamples(run->config, prepared, true, sequences, &data->bound));
    const char* part = data == &run->data.train ? "training: " : "evaluation: ";
    if (!left_out.line.empty()) run->data.train.bound.warnings.push_back(part + left_out.line);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TrainingData> LoadTrainingData(const TrainConfig& config, std::shared_ptr<const OnnxModel> model,
                                              std::optional<int64_t> synthetic_batch) {
  TrainingData data{.model = std::move(model)};
  if (!config.init_from.empty()) {
    ASSIGN_OR_RETURN(data.model, InitFromCheckpoint(data.model, config.init_from, &data.surgery));
  }
  ASSIGN_OR_RETURN(const std::optional<Preprocess> before, ReadPreprocess(config));
  if (before.has_value()) data.preprocess_path = PreprocessPath(config.model);
  ASSIGN_OR_RETURN(data.loss, MakeLossSpec(config, *data.model, before));
  if (config.data.empty()) {
    RETURN_IF_ERROR(MakeSyntheticDataset(config, synthetic_batch, &data));
    return data;
  }
  data.train_text = config.data;
  ASSIGN_OR_RETURN(const std::shared_ptr<CacheBudget> cache, MakeCacheBudget(config));
  const DataRequest request{.path = config.data,
                            .field = "data",
                            .model_classes = !ChangesClasses(config),
                            .fit = true,
                            .leave_out = SplitColumn(config),
                            .cache = cache};
  ASSIGN_OR_RETURN(data.train, OpenData(config, *data.model, before, request, data.loss));
  data.train.ChooseOwnLoss(&data.loss);
  RETURN_IF_ERROR(NumberCountedLabels(config, data.loss, &data.train.bound));
  RETURN_IF_ERROR(ApplySurgeryToData(config, &data.train.bound, &data));
  data.models = std::make_shared<PreparedModels>(data.model);
  RETURN_IF_ERROR(NumberModelLabels(config, *data.models, data.loss, &data.train.bound));
  RETURN_IF_ERROR(OpenEvalData(config, &data));
  return data;
}

StepPlan PlanSteps(const TrainConfig& config, const TrainingData& data, int64_t global_batch,
                   const TokenBudget& tokens) {
  const BoundData& bound = data.train.bound;
  const LoaderOptions load{.batch_size = global_batch, .drop_last = config.drop_last, .tokens = tokens};
  return PlanSteps(CountBatches(*bound.dataset, bound.feeds, load), IfSet(config.epochs),
                   IfSet(data.synthetic ? SyntheticSteps(config) : config.max_steps));
}

TrainOptions PlanLoop(const TrainConfig& config, const StepPlan& steps, int64_t global_batch) {
  TrainOptions options{.batch_size = global_batch,
                       .epochs = steps.epochs,
                       .max_steps = steps.max_steps,
                       .max_seconds = config.max_time,
                       .shuffle = config.shuffle,
                       .length_grouping = config.length_grouping,
                       .drop_last = config.drop_last,
                       .num_workers = NumWorkers(config),
                       .max_workers = MaxWorkers(config),
                       .prefetch_factor = static_cast<int>(config.prefetch_factor),
                       .seed = static_cast<uint64_t>(config.seed),
                       .saves_state = !config.data.empty(),
                       .compare_weights_every = config.compare_weights_every};
  if (config.log_every.value > 0) {
    SetInterval(config.log_every, steps.per_epoch, &options.log_every, &options.log_seconds);
  } else {
    options.log_every = AutoLogSteps(steps);
  }
  SetInterval(config.eval_every, steps.per_epoch, &options.eval_every, &options.eval_seconds);
  if (config.save_every.value > 0)
    SetInterval(config.save_every, steps.per_epoch, &options.save_every, &options.save_seconds);
  if (config.on_nonfinite == "abort") options.max_consecutive_skips = 1;
  return options;
}

namespace {

// What the training_info of the model has to do with the optimizer, for people.
std::vector<std::string> DescribeTrainingInfo(const TrainConfig& config, const OnnxModel& model,
                                              const std::optional<TrainingInfo>& info, const OptimizerSpec& optimizer) {
  if (const std::string taken = DescribeTrainingSettings(config, model); !taken.empty())
    return {StrCat("the model's training_info: ", taken)};
  if (!info.has_value()) return {};
  if (!info->problem.empty()) return {StrCat("the model's training_info is not taken over: ", info->problem)};
  const bool taken = optimizer.rule == StrCat("onnx:", kOwnTrainingInfo);
  return {StrCat("the model's training_info: ", info->optimizer, taken ? " (`optimizer`)" : " is not taken over")};
}

// The rate of the training_info goes with its rule.
std::vector<std::string> GetRates(const TrainConfig& config, const std::optional<TrainingInfo>& info,
                                  const OptimizerSpec& optimizer) {
  const bool own = optimizer.rule == StrCat("onnx:", kOwnTrainingInfo) && !IsSpecified(config, "lr");
  if (!own || !info.has_value() || !info->lr.has_value() || *info->lr <= 0) return config.lr;
  return {StrCat(*info->lr)};
}

}  // namespace

absl::StatusOr<OptimizerChoice> ChooseOptimizer(const TrainConfig& config, const OnnxModel& model,
                                                const PreparedModel& prepared, const std::vector<std::string>& fresh,
                                                int64_t global_batch, int64_t total_steps) {
  OptimizerChoice choice;
  ASSIGN_OR_RETURN(const std::optional<TrainingInfo> info, ReadTrainingInfo(model));
  ASSIGN_OR_RETURN(choice.spec, LoadOptimizer(config, model, info));
  ASSIGN_OR_RETURN(choice.schedule, MakeSchedule(config));
  choice.schedule.total_steps = total_steps;
  choice.origin = ClassifyWeightOrigin(CollectWeights(prepared.model, fresh));
  const RateScale scale = ScaleForBatch(config.lr_scale, choice.spec.rule, global_batch, config.lr_scale_base);
  ASSIGN_OR_RETURN(RateChoice rates, ChooseRates(GetRates(config, info, choice.spec), prepared, choice.origin, fresh,
                                                 choice.spec, scale.factor));
  RETURN_IF_ERROR(DecayByLayer(config, prepared, &rates));
  choice.spec.lr = rates.lr;
  choice.spec.lr_factors = std::move(rates.factors);
  choice.unscaled_lr = rates.lr / scale.factor;
  choice.rate_text = rates.why;
  if (scale.factor != 1)
    StrAppend(&choice.rate_text, "; ", FormatNumber(choice.unscaled_lr), " × ", scale.text, " = ",
              FormatNumber(rates.lr));
  choice.rate_lines = DescribeTrainingInfo(config, model, info, choice.spec);
  choice.rate_lines.insert(choice.rate_lines.end(), rates.lines.begin(), rates.lines.end());
  if (choice.schedule.min_lr > choice.spec.lr)
    return Invalid("`min_lr` ", choice.schedule.min_lr, " is above `lr` ", choice.spec.lr);
  return choice;
}

int64_t TrainingRun::trained_parameters() const {
  int64_t total = 0;
  for (const WeightDecision& w : session->weights()) total += w.trained ? w.type.elements() : 0;
  return total;
}

namespace {

absl::Status StandardizeTargets(const PreparedModel& prepared, TrainingRun* run) {
  auto scaled = ScaleTargets(*run->data.model, prepared, &run->train, &run->eval);
  if (!scaled.ok()) return Annotate(scaled.status(), "`scale_targets`: ");
  run->scaled_targets = *std::move(scaled);
  run->data.train.bound.notes.emplace_back(
      "targets standardized: losses are in units of their standard deviation, metrics and the exported model in the "
      "original unit");
  return absl::OkStatus();
}

// Checks it on a session of its own: that makes no update, so that it takes less memory than the plan of the run, which
// does not count what the check reads.
absl::Status CheckCausality(SessionOptions options, TrainingRun* run) {
  options.recompute.memory_budget = 0;
  ASSIGN_OR_RETURN(const auto session, OpenSession(options, run));
  return CheckCausal(*session, run->train, run->data.train.bound.token_input);
}

// Compiles what the run needs, so that its memory is known before the first update. Where memory runs out, the update
// that needs it tries smaller micro-batches.
absl::Status PlanSession(const TrainingRun& run) {
  const absl::Status planned = run.session->Plan(std::min(run.batch.global, run.train.dataset->size()));
  return absl::IsResourceExhausted(planned) ? absl::OkStatus() : planned;
}

// Makes backend and session of a run that is planned otherwise, with the choices that need a backend.
absl::Status OpenBackend(const TrainConfig& config, const PreparedModel& prepared, const BackendFactory& make_backend,
                         SessionOptions options, AutoChooser* chooser, TrainingRun* run) {
  ASSIGN_OR_RETURN(run->backend, MakeBackendForModel(run->data.models, options, make_backend, &run->config));
  options.optimizer = run->optimizer.spec;
  options.schedule = run->optimizer.schedule;
  options.recompute = MakeRecomputeSpec(config);
  CountCallerMemory(prepared, 0, &options, run);
  if (config.automatic) {
    RETURN_IF_ERROR(chooser->Choose(&options, run));
    CountCallerMemory(prepared, 0, &options, run);
  } else {
    ASSIGN_OR_RETURN(run->precision, ChoosePrecisionAndBatch(config, run->data.models, *run->backend,
                                                             run->train.dataset->size(), &run->batch, &options));
  }
  RETURN_IF_ERROR(FitMemoryBudget(prepared, &options, run));
  run->session_options = options;
  if (options.plan_only) return absl::OkStatus();
  if (run->train.text_unit.tokens_per_sample > 0 && !PartOf(options).on())
    RETURN_IF_ERROR(CheckCausality(options, run));
  if (DecideRateTest(run)) RETURN_IF_ERROR(FindRate(prepared, &options, run));
  ASSIGN_OR_RETURN(run->session, OpenSession(options, run));
  if (PartOf(options).on()) return absl::OkStatus();  // what follows needs the whole model
  if (run->has_eval() && run->optimizer.origin.trained && run->data.fresh.empty()) {
    ASSIGN_OR_RETURN(std::string better, FindBetterPixels(*run->session, run->data.eval, run->eval));
    if (!better.empty()) run->warnings.push_back(std::move(better));
  }
  run->session->DropPrograms();  // of the checks
  if (options.ranks == 1 || config.automatic) RETURN_IF_ERROR(PlanSession(*run));
  return config.automatic ? chooser->Finish(run) : absl::OkStatus();
}

// Checks what would end the run at the end of its first epoch: some models squeeze every axis of one element, so that
// they fail with one sample.
absl::Status CheckLastBatch(const TrainingRun& run, const SessionOptions& options) {
  const int64_t rest = run.data.train.bound.dataset->size() % run.batch.global;
  const bool comes = !run.config.drop_last && !run.tokens.on() && run.steps.total >= run.steps.per_epoch;
  if (!comes || run.batch.micro == 1 || rest % run.batch.micro != 1) return absl::OkStatus();
  const absl::Status status = run.data.models->ImportForward(MakePrepareOptions(options), 1, true, false).status();
  if (status.ok()) return absl::OkStatus();
  return Invalid("`batch_size` ", run.batch.global, ": the last batch of an epoch ",
                 rest == 1 ? "has one sample" : "ends with one sample",
                 ", with which the model fails (`drop_last` leaves that batch out): ", ToStd(status.message()));
}

absl::StatusOr<TrainingRun> PrepareRun(const TrainConfig& given, std::shared_ptr<const OnnxModel> model,
                                       const BackendFactory& make_backend, const ProcessRank& place) {
  TrainConfig config = WithTrainingSettings(WithSplitFiles(WithFolderRoot(given)), *model);
  RETURN_IF_ERROR(Validate(config));
  RETURN_IF_ERROR(RefuseUnused(config, {.has_data = !config.data.empty()}));
  TrainingRun run;
  AutoChooser chooser(given);
  if (config.automatic) SetAutoFields(GlobalBatchSize(config, *model), &config);
  run.config = config;
  ASSIGN_OR_RETURN(run.data, LoadTrainingData(config, std::move(model), std::nullopt));
  BoundData& bound = run.data.train.bound;
  const bool in_order = !bound.places_input.empty();
  if (in_order) run.config.shuffle = config.shuffle = false;
  const int64_t usual = GlobalBatchSize(config, *run.data.model, bound.batch_axes);
  const int64_t global = run.data.synthetic ? run.data.synthetic_batch : in_order ? bound.dataset->size() : usual;
  ASSIGN_OR_RETURN(run.batch, PlanBatch(config, global));
  ChooseGrouping(bound, &config);
  run.config.length_grouping = config.length_grouping;
  ASSIGN_OR_RETURN(run.tokens, PlanTokens(config, bound, &run.batch));
  RETURN_IF_ERROR(CheckBatchFits(*bound.dataset, run.batch.global));
  ASSIGN_OR_RETURN(SessionOptions options,
                   MakeSessionOptions(config, *run.data.model, bound, run.data.loss, run.batch.micro));
  options.tokens = run.tokens;
  options.ranks = place.size;
  options.plan_only = place.plans;
  options.pipeline = {place.rank, static_cast<int>(config.pipeline)};
  options.tensor = {place.rank, static_cast<int>(config.tensor)};
  ASSIGN_OR_RETURN(const PreparedModel prepared, PrepareFor(*run.data.models, bound, &options, true));
  if (options.import.batch_norm_frozen && config.batch_norm != "frozen") {
    run.config.batch_norm = config.batch_norm = "frozen";
    run.data.surgery.emplace_back(
        "note: BatchNormalization is frozen: one sample has no statistics (`batch_norm` train)");
  }
  RETURN_IF_ERROR(LeaveOutBadSamples(prepared, options, &run));
  RETURN_IF_ERROR(CheckBatchFits(*bound.dataset, run.batch.global));
  RETURN_IF_ERROR(FixMicroBatch(config, options, &run.batch));
  // Constants of the model may belong to its samples; the order of a batch of all of them means nothing to others.
  const bool whole = !run.data.synthetic && options.fixed_batch == bound.dataset->size();
  if (whole && !config.length_grouping) run.config.shuffle = config.shuffle = false;
  RETURN_IF_ERROR(KeepWholeBatches(options.fixed_batch, &bound.dataset));
  run.steps = PlanSteps(config, run.data, run.batch.global, run.tokens);
  run.options = PlanLoop(config, run.steps, run.batch.global);
  run.options.tokens = run.tokens;
  RETURN_IF_ERROR(CheckWork(config, *run.data.model, prepared, bound.dataset->size(), run.batch.global));
  RETURN_IF_ERROR(CheckLastBatch(run, options));
  if (run.data.has_eval() && config.metrics.empty())
    run.config.metrics = options.metrics = DefaultMetrics(prepared.loss, run.data.eval.bound.text_unit);
  RETURN_IF_ERROR(ChooseMetrics(options.metrics, prepared.loss).status());
  run.facts = MakeRunFacts(config, run.data, prepared.loss);
  RETURN_IF_ERROR(RefuseUnused(config, run.facts));
  ASSIGN_OR_RETURN(run.optimizer, ChooseOptimizer(config, *run.data.model, prepared, run.data.fresh, run.batch.global,
                                                  run.steps.total));
  ASSIGN_OR_RETURN(run.train, MakeTrainData(bound, prepared, config.ignore_index));
  ASSIGN_OR_RETURN(run.options.mix, PlanMixing(config, run.data.train, prepared.loss, &run.train));
  RETURN_IF_ERROR(CheckVocabulary(run.data.train, run.train));
  if (run.data.has_eval()) {
    RETURN_IF_ERROR(KeepWholeBatches(options.fixed_batch, &run.data.eval.bound.dataset));
    ASSIGN_OR_RETURN(run.eval, MakeTrainData(run.data.eval.bound, prepared, config.ignore_index));
  }
  if (config.scale_targets) RETURN_IF_ERROR(StandardizeTargets(prepared, &run));
  ASSIGN_OR_RETURN(run.warnings, FindDataHints(run, prepared));
  RETURN_IF_ERROR(SetMonitor(run.config, prepared.loss, run.has_eval(), &run.options));
  run.plateau = MakePlateau(run.optimizer, &run.options);

  RETURN_IF_ERROR(OpenBackend(config, prepared, make_backend, std::move(options), &chooser, &run));
  return run;
}

}  // namespace

absl::StatusOr<TrainingRun> PrepareTraining(const TrainConfig& config, const std::shared_ptr<const OnnxModel>& model,
                                            const BackendFactory& make_backend, const ProcessRank& place) {
  auto run = PrepareRun(config, model, make_backend, place);
  // Labels that were made up for scores of the samples against each other are made up again for the only batch that the
  // model follows.
  if (!absl::IsOutOfRange(run.status()) || !config.data.empty() || config.micro_batch_size != 0) return run;
  TrainConfig fixed = config;
  fixed.micro_batch_size = ExportedBatch(*model);
  run = PrepareRun(fixed, model, make_backend, place);
  if (run.ok()) run->warnings.push_back(DescribeFixedBatch(fixed.micro_batch_size));
  return run;
}

absl::StatusOr<std::map<std::string, HostTensor>> TrainingRun::ToExport(
    std::map<std::string, HostTensor> weights) const {
  if (scaled_targets.has_value())
    RETURN_IF_ERROR(Annotate(FoldUnit(scaled_targets->layer, scaled_targets->unit, &weights), "`scale_targets`: "));
  return weights;
}

absl::StatusOr<TrainingRun> PrepareTraining(const TrainConfig& config) {
  ASSIGN_OR_RETURN(auto model, LoadRunnableModel(config));
  return PrepareTraining(config, model, MakeBackend);
}

}  // namespace onnxtrain
