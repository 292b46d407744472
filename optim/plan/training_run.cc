#include "optim/plan/training_run.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/rows.h"
#include "frontend/data/text/pair_rows.h"
#include "frontend/onnx/recover/rows.h"
#include "optim/config/training_settings.h"
#include "optim/plan/adapters.h"
#include "optim/plan/data_checks.h"
#include "optim/plan/data_setup.h"
#include "optim/plan/folders.h"
#include "optim/plan/language_data.h"
#include "optim/plan/micro_batch.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/open_data.h"
#include "optim/plan/packing.h"
#include "optim/plan/run_memory.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/threads.h"
#include "optim/plan/training_data.h"
#include "optim/step/rules/rule.h"
#include "optim/step/training_state.h"

namespace onnxtrain {
namespace {

// Updates the plan after the session has found, by running the model, that it accepts only one batch size.
absl::Status FollowSession(const Session& session, TrainingRun* run, SessionOptions options) {
  if (session.fixed_batch() == options.fixed_batch) return absl::OkStatus();
  options.fixed_batch = session.fixed_batch();
  RETURN_IF_ERROR(KeepWholeBatches(options.fixed_batch, &run->train.dataset));
  if (run->has_eval()) RETURN_IF_ERROR(KeepWholeBatches(options.fixed_batch, &run->eval.dataset));
  return FixMicroBatch(run->config, options, &run->batch);
}

// Scales the last layer of a pre-trained model, which predicts in the original unit, to standardized targets. A model
// with random weights has no unit.
absl::Status BeginInScaledUnit(const TrainingRun& run, Session* session) {
  if (!run.scaled_targets.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto weights, session->Weights());
  auto unfolded = weights;
  const absl::Status possible = UnfoldUnit(run.scaled_targets->layer, run.scaled_targets->unit, &unfolded);
  if (!possible.ok()) return Annotate(possible, "`scale_targets`: ");
  if (!run.optimizer.origin.trained) return absl::OkStatus();
  std::map<std::string, HostTensor> changed;
  for (const OutputLayer::Part& part : run.scaled_targets->layer.parts) changed[part.name] = unfolded.at(part.name);
  return session->SetWeights(changed);
}

// Creates a session with the initial weights of the run. If running the model shows that it accepts only one batch
// size, adjusts run->batch and leaves out samples that do not fill a batch.
absl::StatusOr<std::unique_ptr<Session>> OpenSession(const SessionOptions& options, TrainingRun* run) {
  ASSIGN_OR_RETURN(auto session, Session::Create(run->data.models, run->backend.get(), options));
  RETURN_IF_ERROR(FollowSession(*session, run, options));
  RETURN_IF_ERROR(BeginInScaledUnit(*run, session.get()));
  return session;
}

// Scales the range by the rule's default rate relative to that of adamw.
RateRange RangeOf(const OptimizerSpec& optimizer) {
  const double rule = FindRule(optimizer)->defaults.lr, factor = rule > 0 ? rule / DefaultRate(false, false) : 1;
  RateRange range;
  return {range.min * factor, range.max * factor, range.updates};
}

// Keeps the rates and warns, because the test was inconclusive.
void WarnOfRate(TrainingRun* run) {
  const double lr = run->optimizer.spec.lr, bound = run->rate_test->bound;
  run->warnings.push_back(StrCat(run->config.lr_find ? "`lr_find`: " : "`lr` auto: ", run->rate_test->why,
                                 "; `lr` stays ", FormatNumber(lr),
                                 bound > 0 && lr > bound ? ", which may be too high" : ""));
}

// Returns true if the run searches for a learning rate: if lr_find is set, or if lr is auto with plain gradient
// descent, whose best rate depends on the scale of the loss, and the run has at least ten times as many updates as the
// test. For shorter runs, adds a hint about the test.
bool DecideRateTest(TrainingRun* run) {
  const TrainConfig& c = run->config;
  if (c.lr_find) return true;
  const bool open = c.optimizer == "sgd" && !SpecifiesBaseRate(c.lr) && !run->data.synthetic;
  // No rank of a divided model has all of it, and samples of a stream that the test reads would be lost.
  if (!open || c.pipeline > 1 || c.tensor > 1 || run->train.dataset->streams()) return false;
  const int64_t fewest = 10 * RateRange().updates;
  if (run->steps.total >= fewest) return true;
  StrAppend(&run->optimizer.rate_text, "; `lr_find` tests rates in runs of fewer than ", fewest, " updates, too");
  return false;
}

// Trains one temporary session per rate, from the initial weights of the run.
absl::Status TryRates(const SessionOptions& trial, TrainingRun* run) {
  const double base = run->optimizer.spec.lr;
  const int64_t updates = TrialUpdates(run->steps.total, run->config.lr_find);
  if (updates == 0) {
    StrAppend(&run->rate_test->why, "; no trials: a quarter of ", run->steps.total, " updates is fewer than ",
              kFewestTrialUpdates);
    return absl::OkStatus();
  }
  for (const double lr : TrialRates(*run->rate_test, base)) {
    ASSIGN_OR_RETURN(const auto session, OpenSession(trial, run));
    ASSIGN_OR_RETURN(run->rate_test->trials.emplace_back(),
                     TrySessionRate(*session, run->train, run->options, base, lr, updates));
  }
  SuggestTrialRate(updates, &*run->rate_test);
  return absl::OkStatus();
}

// Runs a range test on a temporary session, which is freed before the session of the run is made. Replaces the rate in
// run->optimizer and *options. If the test is inconclusive, adds a warning to the run.
absl::Status FindRate(const PreparedModel& prepared, SessionOptions* options, TrainingRun* run) {
  SessionOptions trial = *options;
  trial.schedule = {.name = kRateTestSchedule};
  const OptimizerChoice& old = run->optimizer;
  {
    ASSIGN_OR_RETURN(const auto session, OpenSession(trial, run));
    ASSIGN_OR_RETURN(run->rate_test,
                     TestSessionRates(*session, run->train, run->options, old.spec.lr, RangeOf(old.spec)));
  }
  // Skips the trials if batches have several sizes, which cannot be held out, for pipes, which are read only once, and
  // in short runs for which the user did not ask for a test.
  constexpr int64_t kLong = 2000;  // updates
  const bool pays = run->config.lr_find || run->steps.total >= kLong;
  const bool tries = pays && options->variable_extents == 1 && !run->train.dataset->streams();
  if (tries) RETURN_IF_ERROR(TryRates(trial, run));
  if (run->rate_test->lr == 0) return WarnOfRate(run), absl::OkStatus();
  const double rate = RoundRate(run->rate_test->lr * old.unscaled_lr / old.spec.lr);
  ASSIGN_OR_RETURN(run->optimizer, ChooseOptimizer(run->config, ReplaceBaseRate(old.rates, rate), *run->data.model,
                                                   prepared, run->data.fresh, run->batch.global, run->steps.total));
  run->optimizer.rate_text = StrCat(" ", run->rate_test->why, run->optimizer.rate_text);
  run->plateau = MakePlateau(run->optimizer, &run->options);
  options->optimizer = run->optimizer.spec;
  options->schedule = run->optimizer.schedule;
  return absl::OkStatus();
}

// Refuses to train the rest of a model whose matrix products use weights without a gradient, unless the user asked for
// it.
absl::Status CheckStoredForms(const TrainConfig& config, const OnnxModel& model) {
  const std::string untrained = FindUntrainedWeights(model);
  const bool chosen = !config.train.empty() || !config.freeze.empty() || HasAdapters(config);
  if (untrained.empty() || chosen) return absl::OkStatus();
  return Invalid("the weights of ", untrained,
                 " are stored as integers that cannot be trained: train adapters beside them (`lora_rank` 8), or name "
                 "the other weights that are to be trained (`train`)");
}

absl::Status CheckTrains(const PreparedModel& prepared) {
  if (std::ranges::any_of(prepared.weights, &WeightDecision::trained)) return absl::OkStatus();
  return Invalid("nothing to train: ", prepared.weights.empty()
                                           ? "the model has no weights"
                                           : StrCat("no weight is trainable ('", prepared.weights[0].name,
                                                    "': ", prepared.weights[0].why, ")"));
}

// Checks for errors that would end the run at its first step.
absl::Status CheckWork(const TrainConfig& config, const OnnxModel& model, const PreparedModel& prepared,
                       int64_t samples, int64_t global_batch) {
  RETURN_IF_ERROR(CheckTrains(prepared));
  RETURN_IF_ERROR(CheckStoredForms(config, model));
  if (config.drop_last && samples < global_batch)
    return Invalid("`drop_last`: ", samples, " samples make no batch of ", global_batch, " (`batch_size`)");
  return absl::OkStatus();
}

const ModelPart& PartOf(const SessionOptions& options) {
  return options.tensor.on() ? options.tensor : options.pipeline;
}

absl::Status CheckVocabulary(const OpenedData& data, const TrainData& train) {
  const auto ids = std::ranges::find(train.specs, data.bound.token_input, &FeedSpec::feed);
  const bool none = ids == train.specs.end() || data.text.tokenizer == nullptr;
  return none ? absl::OkStatus() : CheckVocabulary(*data.text.tokenizer, ids->range);
}

// Leaves bad samples of training and evaluation out, with a warning.
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

absl::Status StandardizeTargets(const PreparedModel& prepared, TrainingRun* run) {
  auto scaled = ScaleTargets(*run->data.model, prepared, &run->train, &run->eval);
  if (!scaled.ok()) return Annotate(scaled.status(), "`scale_targets`: ");
  run->scaled_targets = *std::move(scaled);
  run->data.train.bound.notes.emplace_back(
      "targets standardized: losses are in units of their standard deviation, metrics and the exported model in the "
      "original unit");
  return absl::OkStatus();
}

// Marks the failure of a packing that was chosen automatically.
constexpr char kUnpackPayload[] = "onnxtrain/unpack";

// Checks in a temporary session that no token sees later ones or other samples of its row. The session makes no update
// and takes less memory than the plan of the run, which does not count the data that the checks read.
absl::Status CheckTokenOrder(SessionOptions options, TrainingRun* run) {
  options.recompute.memory_budget = 0;
  ASSIGN_OR_RETURN(const auto session, OpenSession(options, run));
  const std::string& ids = run->data.train.bound.token_input;
  RETURN_IF_ERROR(CheckCausal(*session, run->train, ids));
  if (!run->data.train.text.packed.value_or(false)) return absl::OkStatus();
  absl::Status separated = CheckSeparation(*session, run->train, ids, options.compute);
  if (!separated.ok() && run->config.packing == "auto" && !IsStdin(run->config.data))
    separated.SetPayload(kUnpackPayload, absl::Cord());
  return separated;
}

// Compiles the programs of the run, so that its memory is known before the first update. If memory runs out, the update
// that needs a program tries smaller micro-batches.
absl::Status PlanSession(const TrainingRun& run) {
  const absl::Status planned = run.session->Plan(std::min(run.batch.global, run.train.dataset->size()));
  return absl::IsResourceExhausted(planned) ? absl::OkStatus() : planned;
}

// Checks for errors that would end the run at the end of its first epoch: some models squeeze every axis of extent 1,
// so they fail with one sample.
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

// Checks the configuration of a program that trains on its own batches: it has loaded the model and evaluates by
// itself.
absl::Status CheckCallerConfig(const TrainConfig& config, const OnnxModel& model) {
  RETURN_IF_ERROR(CheckRunnable(config, model));
  if (config.lr_scheduler.starts_with("plateau"))
    return Invalid("`lr_scheduler` plateau: there is no evaluation data (`eval_data`, `eval_split`)");
  if (config.max_steps == 0 && config.lr_scheduler != "constant")
    return Invalid("`lr_scheduler` ", config.lr_scheduler, ": of how many updates? (`max_steps`)");
  if (config.max_steps == 0 && config.warmup > 0 && config.warmup < 1)
    return Invalid("`warmup` ", config.warmup, ": a share of how many updates? (`max_steps`)");
  return absl::OkStatus();
}

// Returns the facts that are known before model and data are opened.
RunFacts BeginFacts(const TrainConfig& config, const RunRequest& request) {
  const bool caller = request.samples.caller != nullptr, data = !caller && !config.data.empty();
  const bool folder = !caller || !config.out.empty();
  return {.has_folder = folder,
          .has_data = data,
          .has_loop = !caller,
          .has_checkpoints = caller ? folder : data,
          .has_eval = !caller};
}

TrainConfig CompleteConfig(const TrainConfig& given, const OnnxModel& model, const RunRequest& request) {
  if (request.samples.caller != nullptr) return WithTrainingSettings(given, model);
  TrainConfig config = WithTrainingSettings(WithSplitFiles(WithFolderRoot(given)), model);
  if (config.automatic && !request.samples.one_batch) SetAutoFields(GlobalBatchSize(config, model), &config);
  return config;
}

// Makes the decisions of a run, one after the other.
class RunBuilder {
 public:
  RunBuilder(const TrainConfig& given, std::shared_ptr<const OnnxModel> model, const BackendFactory& make_backend,
             const RunRequest& request)
      : request_(request),
        make_backend_(make_backend),
        model_(std::move(model)),
        run_{.config = CompleteConfig(given, *model_, request)},
        chooser_(given) {}

  absl::StatusOr<TrainingRun> Build() {
    RETURN_IF_ERROR(OpenSamples());
    RETURN_IF_ERROR(PrepareModel());
    RETURN_IF_ERROR(has_samples() ? PlanUpdates() : PlanCallerUpdates());
    RETURN_IF_ERROR(ChooseRates());
    RETURN_IF_ERROR(has_samples() ? FeedSamples() : FeedCaller());
    RETURN_IF_ERROR(OpenBackend());
    if (!request_.plans) RETURN_IF_ERROR(OpenTrainingSession());
    return std::move(run_);
  }

 private:
  bool has_samples() const { return run_.data.has_samples(); }
  // Checks for a whole run do not apply to an update that is only planned or timed.
  bool trains() const { return !run_.data.one_batch; }
  bool chooses() const { return run_.config.automatic && has_samples() && trains(); }
  BoundData& bound() { return run_.data.train.bound; }
  int64_t CountSamples() const { return has_samples() ? run_.train.dataset->size() : run_.batch.global; }

  absl::Status OpenSamples();
  absl::Status PrepareModel();
  absl::Status PlanUpdates();
  absl::Status PlanCallerUpdates();
  absl::Status ChooseRates();
  absl::Status FeedSamples();
  absl::Status FeedCaller();
  absl::Status OpenBackend();
  absl::Status AddReference();
  absl::Status EvaluateReference();
  absl::Status OpenTrainingSession();

  const RunRequest& request_;
  const BackendFactory& make_backend_;
  std::shared_ptr<const OnnxModel> model_;
  TrainingRun run_;
  AutoChooser chooser_;
  SessionOptions options_;
  PreparedModel prepared_;
};

absl::Status RunBuilder::OpenSamples() {
  const TrainConfig& config = run_.config;
  RETURN_IF_ERROR(Validate(config));
  RETURN_IF_ERROR(CheckTrainsOneAdapter(config));
  if (!request_.samples.one_batch) RETURN_IF_ERROR(RefuseUnused(config, BeginFacts(config, request_)));
  if (request_.samples.caller != nullptr) RETURN_IF_ERROR(CheckCallerConfig(config, *model_));
  ASSIGN_OR_RETURN(run_.data, LoadTrainingData(config, std::move(model_), request_.samples));
  const int64_t usual = GlobalBatchSize(config, *run_.data.model, bound().batch_axes);
  const bool in_order = !bound().sample_index_input.empty();
  const int64_t global = run_.data.synthetic ? run_.data.synthetic_batch : in_order ? bound().dataset->size() : usual;
  ASSIGN_OR_RETURN(run_.batch, PlanBatch(config, global));
  if (!has_samples()) return absl::OkStatus();
  ASSIGN_OR_RETURN(run_.tokens, PlanTokens(config, bound(), &run_.batch));
  return CheckBatchFits(*bound().dataset, run_.batch.global);
}

absl::Status RunBuilder::PrepareModel() {
  const TrainConfig& config = run_.config;
  const OnnxModel& model = *run_.data.model;
  ASSIGN_OR_RETURN(options_, MakeSessionOptions(config, model, bound(), run_.data.loss, run_.batch.micro));
  options_.tokens = run_.tokens;
  options_.ranks = request_.ranks;
  options_.plan_only = request_.plans;
  options_.pipeline = {request_.rank, static_cast<int>(config.pipeline)};
  options_.tensor = {request_.rank, static_cast<int>(config.tensor)};
  auto prepared = PrepareFor(*run_.data.models, bound(), &options_, true);
  if (!prepared.ok()) {
    const std::string dims = has_samples() ? "" : DescribeFreeDims(model, options_.import.dim_values);
    return {prepared.status().code(), StrCat(ToStd(prepared.status().message()), dims)};
  }
  prepared_ = *std::move(prepared);
  run_.loss_text = prepared_.loss.explanation;
  if (options_.import.batch_norm_frozen && config.batch_norm != "frozen")
    run_.data.surgery.emplace_back(StrCat("note: BatchNormalization is frozen: ",
                                          options_.fixed_batch == 1
                                              ? "one sample has no statistics"
                                              : "the few pictures of one size in a batch have poor statistics",
                                          " (`batch_norm` train)"));
  if (has_samples()) RETURN_IF_ERROR(LeaveOutBadSamples(prepared_, options_, &run_));
  if (has_samples()) RETURN_IF_ERROR(CheckBatchFits(*bound().dataset, run_.batch.global));
  run_.order = ChooseOrder(config, bound());
  return FixMicroBatch(config, options_, &run_.batch);
}

absl::Status RunBuilder::PlanUpdates() {
  const TrainConfig& config = run_.config;
  // Keeps the order if one batch is the whole data: constants of the model may refer to samples by position, and for
  // other models the order within the batch is irrelevant.
  const bool whole = !run_.data.synthetic && options_.fixed_batch == bound().dataset->size();
  if (whole && !run_.order.length_grouping) run_.order.shuffle = false;
  RETURN_IF_ERROR(KeepWholeBatches(options_.fixed_batch, &bound().dataset));
  run_.steps = PlanSteps(config, run_.data, run_.batch.global, run_.tokens);
  run_.options = PlanLoop(config, run_.steps, run_.order, run_.tokens, run_.batch.global);
  RETURN_IF_ERROR(CheckWork(config, *run_.data.model, prepared_, bound().dataset->size(), run_.batch.global));
  return CheckLastBatch(run_, options_);
}

// Plans the updates of a calling program: it has no epochs, so max_steps, if set, is their number.
absl::Status RunBuilder::PlanCallerUpdates() {
  const TrainConfig& config = run_.config;
  RETURN_IF_ERROR(CheckTrains(prepared_));
  for (const auto& [name, interval] : {std::pair("log_every", config.log_every), {"save_every", config.save_every}}) {
    if (interval.unit == Interval::Unit::kEpochs)
      return Invalid("`", name, "` ", interval.value, "ep: a program's batches have no epochs");
  }
  constexpr int64_t kLogEvery = 10;
  run_.steps = {.epochs = 1, .max_steps = config.max_steps, .total = config.max_steps};
  run_.options = PlanLoop(config, run_.steps, run_.order, run_.tokens, run_.batch.global);
  if (config.max_steps == 0 && config.log_every.value == 0) run_.options.log_every = kLogEvery;
  return absl::OkStatus();
}

absl::Status RunBuilder::ChooseRates() {
  const TrainConfig& config = run_.config;
  if (run_.data.has_eval() && config.metrics.empty())
    options_.metrics = DefaultMetrics(prepared_.loss, run_.data.eval.bound.text_unit);
  RETURN_IF_ERROR(ChooseMetrics(options_.metrics, prepared_.loss).status());
  run_.session_options = options_;
  const TrainConfig decided = WithDecisions(run_);
  run_.facts = MakeRunFacts(decided, run_.data, prepared_.loss);
  if (trains()) RETURN_IF_ERROR(RefuseUnused(decided, run_.facts));
  ASSIGN_OR_RETURN(run_.optimizer, ChooseOptimizer(config, config.lr, *run_.data.model, prepared_, run_.data.fresh,
                                                   run_.batch.global, run_.steps.total));
  run_.optimizer.schedule.host_factor = !has_samples();
  run_.optimizer.spec.tables = FindTables(prepared_.model);
  run_.state_bytes = StateBytes(run_.optimizer.spec, prepared_.weights);
  return absl::OkStatus();
}

absl::Status RunBuilder::FeedSamples() {
  const TrainConfig& config = run_.config;
  ASSIGN_OR_RETURN(run_.train, MakeTrainData(bound(), prepared_, config.ignore_index));
  ASSIGN_OR_RETURN(run_.options.mix, PlanMixing(config, run_.data.train, prepared_.loss, &run_.train));
  RETURN_IF_ERROR(CheckVocabulary(run_.data.train, run_.train));
  if (run_.data.has_eval()) {
    RETURN_IF_ERROR(KeepWholeBatches(options_.fixed_batch, &run_.data.eval.bound.dataset));
    ASSIGN_OR_RETURN(run_.eval, MakeTrainData(run_.data.eval.bound, prepared_, config.ignore_index));
  }
  if (config.scale_targets) RETURN_IF_ERROR(StandardizeTargets(prepared_, &run_));
  if (!trains()) return absl::OkStatus();
  ASSIGN_OR_RETURN(run_.warnings, FindDataHints(run_, prepared_));
  RETURN_IF_ERROR(SetMonitor(config, prepared_.loss, options_.metrics, run_.has_eval(), &run_.options));
  run_.plateau = MakePlateau(run_.optimizer, &run_.options);
  return absl::OkStatus();
}

absl::Status RunBuilder::FeedCaller() {
  ASSIGN_OR_RETURN(run_.batches,
                   MakeCallerBatches(prepared_, *request_.samples.caller, run_.config.ignore_index, &options_));
  return absl::OkStatus();
}

absl::Status RunBuilder::OpenBackend() {
  const TrainConfig& config = run_.config;
  ASSIGN_OR_RETURN(run_.backend, MakeBackendForModel(run_.data.models, options_, make_backend_, config, &run_.threads));
  options_.optimizer = run_.optimizer.spec;
  options_.schedule = run_.optimizer.schedule;
  options_.recompute = MakeRecomputeSpec(config);
  if (options_.recompute.offload && !run_.backend->Offloads())
    return Invalid("`activation_offloading` yes: the backend ", run_.backend->name(),
                   " keeps activations in memory (`backend` cpu)");
  has_samples() ? CountCallerMemory(prepared_, 0, &options_, &run_) : CountSaves(&options_, &run_);
  if (chooses()) {
    RETURN_IF_ERROR(chooser_.Choose(&options_, &run_));
    CountCallerMemory(prepared_, 0, &options_, &run_);
  } else {
    ASSIGN_OR_RETURN(run_.precision, ChoosePrecisionAndBatch(config, run_.data.models, *run_.backend, CountSamples(),
                                                             &run_.batch, &options_));
  }
  if (has_samples() && trains()) RETURN_IF_ERROR(FitMemoryBudget(prepared_, &options_, &run_));
  if (options_.optimizer.in_backward && run_.batch.accumulation > 1)
    return Invalid("`optimizer_in_backward` yes: an update of ", run_.batch.accumulation,
                   " micro-batches sums their gradients (`micro_batch_size` ", run_.batch.global, ")");
  run_.session_options = options_;
  return absl::OkStatus();
}

// Evaluates the reference in a temporary session, before any update.
absl::Status RunBuilder::EvaluateReference() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<Session> session;
  if (run_.config.reference_model.empty()) {
    ASSIGN_OR_RETURN(session, OpenSession(ReferenceOptions(options_), &run_));
  } else {
    ASSIGN_OR_RETURN(const TrainConfig reference, FindReferenceModel(run_.config, std::nullopt));
    auto opened = OpenReferenceModel(reference, bound(), options_, run_.backend.get());
    if (!opened.ok()) return Annotate(opened.status(), StrCat("`reference_model` ", reference.model, ": "));
    session = *std::move(opened);
  }
  ASSIGN_OR_RETURN(run_.reference.train, ScoreReference(*session, run_.train));
  if (run_.has_eval()) {
    ASSIGN_OR_RETURN(run_.reference.eval, ScoreReference(*session, run_.eval));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  bound().notes.push_back(absl::StrFormat(
      "the reference is %s, evaluated in %.1f s",
      run_.config.reference_model.empty() ? "the model before its first update" : run_.config.reference_model,
      seconds));
  return absl::OkStatus();
}

// Gives pairs of answers their log-probabilities under the reference. A resumed run reads those of its beginning.
absl::Status RunBuilder::AddReference() {
  if (options_.loss.pairs && PartOf(options_).on())
    return Invalid("`loss` ", prepared_.loss.name, ": pairs of answers need the whole model on each rank");
  if (!has_samples() || !prepared_.loss.leading().function->reference) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::string identity,
                   IdentifyReference(*run_.data.model, prepared_.model.weights, run_.train, run_.eval));
  identity += run_.config.reference_model;
  const std::string path = StrCat(run_.config.out, "/", kReferenceFile);
  auto kept = run_.config.resume.empty() ? std::nullopt : ReadReferenceScores(path, identity);
  if (kept.has_value()) {
    run_.reference = *std::move(kept);
    bound().notes.push_back(StrCat("the reference's log-probabilities are those of ", path));
  } else {
    RETURN_IF_ERROR(EvaluateReference());
    run_.reference.identity = identity;
  }
  run_.train.dataset = WithReference(run_.train.dataset, run_.reference.train);
  if (run_.has_eval()) run_.eval.dataset = WithReference(run_.eval.dataset, run_.reference.eval);
  return absl::OkStatus();
}

absl::Status RunBuilder::OpenTrainingSession() {
  const bool whole = !PartOf(options_).on();
  RETURN_IF_ERROR(AddReference());
  if (run_.train.text_unit.tokens_per_sample > 0 && whole) RETURN_IF_ERROR(CheckTokenOrder(options_, &run_));
  if (has_samples() && DecideRateTest(&run_)) RETURN_IF_ERROR(FindRate(prepared_, &options_, &run_));
  ASSIGN_OR_RETURN(run_.session, OpenSession(options_, &run_));
  if (!has_samples() || !whole) return absl::OkStatus();  // the rest needs the whole model
  if (run_.has_eval() && run_.optimizer.origin.trained && run_.data.fresh.empty()) {
    ASSIGN_OR_RETURN(std::string better, FindBetterPixels(*run_.session, run_.data.eval, run_.eval));
    if (!better.empty()) run_.warnings.push_back(std::move(better));
  }
  run_.session->DropPrograms();  // frees the programs of the checks
  if (options_.ranks == 1 || chooses()) RETURN_IF_ERROR(PlanSession(run_));
  return chooses() ? chooser_.Finish(&run_) : absl::OkStatus();
}

}  // namespace

int64_t TrainingRun::trained_parameters() const {
  int64_t total = 0;
  for (const WeightDecision& w : session->weights()) total += w.trained ? w.type.elements() : 0;
  return total;
}

int TrainingRun::compute_threads() const { return ComputeThreads(WithDecisions(*this)); }

absl::StatusOr<TrainingRun> PrepareTraining(const TrainConfig& config, const std::shared_ptr<const OnnxModel>& model,
                                            const BackendFactory& make_backend, const RunRequest& request) {
  auto run = RunBuilder(config, model, make_backend, request).Build();
  if (run.status().GetPayload(kUnpackPayload).has_value()) {
    const std::string why(ToStd(run.status().message()));
    TrainConfig unpacked = config;
    unpacked.packing = "off";
    run = RunBuilder(unpacked, model, make_backend, request).Build();
    if (run.ok()) run->warnings.push_back(StrCat(why, "; a row for each dialogue"));
    return run;
  }
  // Synthetic labels for scores of samples against each other depend on the micro-batch. They are made again for the
  // only batch size that the model accepts.
  const bool made_up = config.data.empty() && request.samples.caller == nullptr;
  if (!absl::IsOutOfRange(run.status()) || !made_up || config.micro_batch_size != 0) return run;
  TrainConfig fixed = config;
  fixed.micro_batch_size = ExportedBatch(*model);
  run = RunBuilder(fixed, model, make_backend, request).Build();
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
