#include "tools/onnxtrain/train_setup.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "optim/lr_schedule.h"
#include "optim/rules/rule.h"
#include "optim/telemetry/format.h"
#include "optim/telemetry/summary.h"
#include "tools/onnxtrain/data_view.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/flags.h"
#include "tools/onnxtrain/learning_rates.h"
#include "tools/onnxtrain/memory_flags.h"
#include "tools/onnxtrain/surgery.h"
#include "tools/onnxtrain/synthetic_run.h"

namespace onnxtrain::cli {
namespace {

constexpr int64_t kSyntheticSteps = 20;

std::optional<int64_t> IfGiven(const char* flag, int64_t value) {
  return Given(flag) ? std::optional(value) : std::nullopt;
}

bool IsTable(const std::string& path) {
  return path.find(".csv") != std::string::npos || path.find(".tsv") != std::string::npos;
}

// Puts the model with another head, or with new weights, in place of the one that was given.
absl::Status OperateOnModel(TrainSetup& s, const BoundData* data) {
  if (!WantsSurgery()) return absl::OkStatus();
  ASSIGN_OR_RETURN(Surgery surgery, Operate(s.model, data, s.loss_spec.logits));
  s.model = std::move(surgery.model);
  s.surgery = std::move(surgery.lines);
  s.fresh = std::move(surgery.fresh);
  if (!surgery.logits.empty()) s.loss_spec.logits = surgery.logits;
  return absl::OkStatus();
}

// --eval-split COLUMN, "" where it is a fraction or not given.
std::string SplitColumn() {
  const bool fraction = ParseNumber(FLAGS_eval_split).ok() || FLAGS_eval_split.starts_with("last:");
  return !Given("eval_split") || fraction ? "" : FLAGS_eval_split;
}

absl::Status OpenTrainingData(TrainSetup& s) {
  auto before = ReadPreprocess(FLAGS_model);
  if (!before.ok()) return before.status();
  if (before->has_value()) Say(StrCat("reading ", PreprocessPath(FLAGS_model), ", which was written with this model"));
  if (before->has_value() && ChangesClasses()) (*before)->classes.clear(), (*before)->loss.clear();
  ASSIGN_OR_RETURN(s.loss_spec, LossFlags(*s.model, *before));
  if (s.synthetic) {
    RETURN_IF_ERROR(OperateOnModel(s, nullptr));
    ASSIGN_OR_RETURN(const ImportOptions import, ImportFlags(*s.model));
    const int64_t steps = Given("max_steps") ? FLAGS_max_steps : kSyntheticSteps;
    ASSIGN_OR_RETURN(s.data.bound, SyntheticData(*s.model, import, s.loss_spec, steps * s.batch.global, FLAGS_seed));
    s.data_text = "synthetic";
    return absl::OkStatus();
  }
  s.data_text = FLAGS_data;
  ASSIGN_OR_RETURN(s.data, OpenData(*s.model, *before, {.path = FLAGS_data, .flag = "data", .leave_out = SplitColumn()}, s.loss_spec));
  return OperateOnModel(s, &s.data.bound);
}

// What evaluation data has to agree with: the columns and classes of the training data.
Preprocess LikeTraining(const BoundData& data, const std::string& normalize) {
  Preprocess p{.normalize = normalize, .classes = data.classes};
  const auto& columns = data.dataset->columns();
  for (const FeedSpec& feed : data.feeds) {
    for (int c : feed.columns) p.inputs[feed.feed].push_back(columns[c].name);
    p.layout[feed.feed] = feed.sample.shape;
  }
  for (int c : data.label.columns) p.label.push_back(columns[c].name);
  return p;
}

absl::Status CarveByColumn(TrainSetup& s, const std::string& column) {
  if (s.data.bound.dataset->size() < 2) return Invalid("--eval-split: one sample cannot be split");
  ASSIGN_OR_RETURN(Split parts, SplitByColumn(s.data.bound.dataset, FLAGS_data, HeaderKind(), column));
  s.eval = s.data;
  s.data.bound.dataset = std::move(parts.train);
  s.eval.bound.dataset = std::move(parts.eval);
  s.eval_text = StrCat("what column '", column, "' says of the data");
  return absl::OkStatus();
}

absl::Status Carve(TrainSetup& s) {
  if (const std::string column = SplitColumn(); !column.empty()) return CarveByColumn(s, column);
  const auto split = ParseSplit(FLAGS_eval_split);
  if (!split.ok()) return Annotate(split.status(), "--eval-split: ");
  if (s.data.bound.dataset->size() < 2) return Invalid("--eval-split: one sample cannot be split");
  s.eval = s.data;
  Split parts = SplitDataset(s.data.bound.dataset, split->fraction, split->last, FLAGS_seed);
  s.data.bound.dataset = std::move(parts.train);
  s.eval.bound.dataset = std::move(parts.eval);
  s.eval_text = StrCat(split->last ? "the last " : "random ", Short(100 * split->fraction), "% of the data");
  return absl::OkStatus();
}

bool CarvesEvalData() { return Given("eval_split") && !Given("eval_data"); }

absl::Status OpenEvalData(TrainSetup& s) {
  if (s.synthetic) return absl::OkStatus();
  if (CarvesEvalData()) return Carve(s);
  const Preprocess like = LikeTraining(s.data.bound, s.data.normalize);
  DataRequest request{
      .path = Given("eval_data") ? FLAGS_eval_data : FLAGS_data, .flag = "eval-data", .eval_split = true};
  if (!Given("eval_data") && !HasEvalFiles(FLAGS_data)) return absl::OkStatus();
  ASSIGN_OR_RETURN(s.eval, OpenData(*s.model, like, request, s.loss_spec));
  s.eval_text = request.path;
  return absl::OkStatus();
}

absl::Status PlanRun(TrainSetup& s) {
  ASSIGN_OR_RETURN(s.options.num_workers, WorkerThreads());
  s.options.prefetch_factor = static_cast<int>(FLAGS_prefetch_factor);
  s.steps = PlanSteps(s.data.bound.dataset->size(), s.batch.global, FLAGS_drop_last, IfGiven("epochs", FLAGS_epochs),
                      s.synthetic ? std::optional(Given("max_steps") ? FLAGS_max_steps : kSyntheticSteps)
                                  : IfGiven("max_steps", FLAGS_max_steps));
  s.options.batch_size = s.batch.global;
  s.options.epochs = s.steps.epochs;
  s.options.max_steps = s.steps.max_steps;
  s.options.shuffle = FLAGS_shuffle;
  s.options.drop_last = FLAGS_drop_last;
  s.options.seed = static_cast<uint64_t>(FLAGS_seed);
  if (Given("max_time")) {
    const auto seconds = ParseDuration(FLAGS_max_time);
    if (!seconds.ok()) return Annotate(seconds.status(), "--max-time: ");
    s.options.max_seconds = *seconds;
  }
  return absl::OkStatus();
}

absl::Status PlanIntervals(TrainSetup& s) {
  struct Row {
    const char* flag;
    const std::string& text;
    int64_t* steps;
    double* seconds;
  };
  const Row rows[] = {{"log_every", FLAGS_log_every, &s.options.log_every, &s.options.log_seconds},
                      {"eval_every", FLAGS_eval_every, &s.options.eval_every, &s.options.eval_seconds}};
  for (const Row& row : rows) {
    if (row.text == "auto") {
      *row.steps = AutoLogSteps(s.steps);
      continue;
    }
    const auto interval = ParseInterval(row.text);
    if (!interval.ok()) return Annotate(interval.status(), StrCat(Shown(row.flag), ": "));
    *row.steps = IntervalSteps(*interval, s.steps.per_epoch);
    if (interval->unit == Interval::Unit::kSeconds) *row.seconds = interval->value;
  }
  return absl::OkStatus();
}

// A number in [0, limit) that the rule has a default for.
absl::Status ReadRuleNumber(const char* flag, const std::string& text, double limit, double* value) {
  if (text == "auto") return absl::OkStatus();
  const auto number = ParseNumber(text);
  if (!number.ok() || !(*number >= 0 && *number < limit)) {
    return Invalid(Shown(flag), ": expected auto or a number of at least 0", limit < 2 ? " and below 1" : "", ", got '", text, "'");
  }
  *value = *number;
  return absl::OkStatus();
}

absl::Status ReadOptimizerFlags(TrainSetup& s) {
  s.optimizer = {.rule = FLAGS_optimizer,
                 .dampening = FLAGS_dampening,
                 .nesterov = FLAGS_nesterov,
                 .weight_decay = FLAGS_weight_decay,
                 .no_decay = FLAGS_no_decay,
                 .max_grad_norm = MaxGradNorm(),
                 .clip_value = FLAGS_clip_value,
                 .agc = FLAGS_agc,
                 .ema_decay = FLAGS_ema_decay};
  RETURN_IF_ERROR(ReadRuleNumber("momentum", FLAGS_momentum, 1, &s.optimizer.momentum));
  RETURN_IF_ERROR(ReadRuleNumber("eps", FLAGS_eps, std::numeric_limits<double>::infinity(), &s.optimizer.eps));
  if (FLAGS_betas != "auto") {
    const auto betas = ParseBetas(FLAGS_betas);
    if (!betas.ok()) return Annotate(betas.status(), "--betas: ");
    s.optimizer.beta1 = betas->first;
    s.optimizer.beta2 = betas->second;
  }
  s.optimizer = Resolved(s.optimizer);
  if (FLAGS_nesterov && FLAGS_dampening != 0) return Invalid("--nesterov: goes with no --dampening");
  const auto schedule = ParseSchedule(FLAGS_lr_scheduler);
  if (!schedule.ok()) return Annotate(schedule.status(), "--lr-scheduler: ");
  s.schedule = *schedule;
  s.schedule.warmup = FLAGS_warmup;
  s.schedule.min_lr = FLAGS_min_lr;
  s.schedule.total_steps = s.steps.total;
  return absl::OkStatus();
}

absl::Status ChooseRate(const PreparedModel& prepared, TrainSetup& s) {
  s.origin = JudgeWeights(WeightsOf(prepared.model, s.fresh));
  const RateScale scale = ScaleForBatch(FLAGS_lr_scale, s.optimizer.rule, s.batch.global, FLAGS_lr_scale_base);
  ASSIGN_OR_RETURN(RateChoice choice, ChooseRates(Values("lr"), prepared, s.origin, s.fresh, s.optimizer, scale.factor));
  RETURN_IF_ERROR(DecayByLayer(FLAGS_layer_lr_decay, prepared, &choice));
  s.optimizer.lr = choice.lr;
  s.unscaled_lr = choice.lr / scale.factor;
  s.optimizer.lr_factors = std::move(choice.factors);
  s.rate_text = choice.why + (scale.factor == 1 ? "" : StrCat("; ", Short(s.unscaled_lr), " × ", scale.text, " = ", Short(choice.lr)));
  s.rate_lines = std::move(choice.lines);
  if (s.schedule.min_lr > s.optimizer.lr) {
    return Invalid("--min-lr ", s.schedule.min_lr, " is above --lr ", s.optimizer.lr);
  }
  return absl::OkStatus();
}

// The schedule plateau needs evaluations, and a metric of theirs.
absl::Status SetUpPlateau(TrainSetup& s, const LossChoice& loss, const std::vector<std::string>& metrics) {
  if (s.schedule.name != "plateau") return absl::OkStatus();
  if (!s.has_eval()) return Invalid("--lr-scheduler plateau: there is no evaluation data (--eval-data, --eval-split)");
  const size_t colon = FLAGS_monitor.rfind(':');
  const std::string name = FLAGS_monitor.substr(0, colon), to = colon == std::string::npos ? "" : FLAGS_monitor.substr(colon + 1);
  const bool known = name == "loss" || (name == "accuracy" && loss.classes) || std::find(metrics.begin(), metrics.end(), name) != metrics.end();
  if (!known || (to != "min" && to != "max" && !to.empty())) {
    return Invalid("--monitor ", FLAGS_monitor, ": expected loss, ", loss.classes ? "accuracy, " : "", "or one of --metrics, with :min or :max behind it");
  }
  const bool falls = name == "loss" || name.starts_with("mae") || name.starts_with("perplexity");
  s.plateau.emplace(s.schedule, s.optimizer.lr, to.empty() ? !falls : to == "max");
  s.options.plateau = &*s.plateau;
  s.options.monitor = name;
  return absl::OkStatus();
}

RunFacts FactsOf(const TrainSetup& s, const LossChoice& loss) {
  const auto ops = s.model->op_histogram();
  return {.has_data = !s.synthetic,
          .has_eval = s.eval.bound.dataset != nullptr,
          .optimizer = FLAGS_optimizer,
          .momentum = s.optimizer.momentum,
          .scheduler = s.schedule.name,
          .weight_decay = FLAGS_weight_decay,
          .scales_lr = FLAGS_lr_scale != "none",
          .loss_takes = LossTakes(loss),
          .has_images = s.data.bound.has_images,
          .is_table = IsTable(FLAGS_data),
          .has_batch_norm = ops.contains("BatchNormalization"),
          .has_dropout = ops.contains("Dropout"),
          .eval_data_given = Given("eval_data"),
          .fp16 = FLAGS_mixed_precision == "fp16"};
}

absl::Status CheckEffects(const RunFacts& facts) {
  for (const FlagSpec& flag : FlagsOf("train")) {
    if (!Given(flag.name)) continue;
    const std::string why = WhyNoEffect(flag.name, facts);
    if (!why.empty()) return Invalid(Shown(flag.name), ": has no effect: ", why);
  }
  return absl::OkStatus();
}

absl::Status CheckExport() {
  if (FLAGS_export_weights == "best") return Invalid("--export-weights best: no checkpoints are kept to take the best of; say last or ema");
  if (FLAGS_export_weights == "ema" && FLAGS_ema_decay == 0) return Invalid("--export-weights ema: no average is kept; say --ema-decay");
  return absl::OkStatus();
}

// What can be refused before anything is read.
absl::Status CheckEarly(TrainSetup& s) {
  RETURN_IF_ERROR(CheckExport());
  for (const std::string& text : Values("require")) {
    auto requirement = ParseRequirement(text);
    if (!requirement.ok()) return Annotate(requirement.status(), "--require: ");
    s.requirements.push_back(*requirement);
  }
  ASSIGN_OR_RETURN(s.batch, BatchFlags(BatchFlag(*s.model)));
  s.synthetic = !Given("data");
  if (!s.synthetic) return absl::OkStatus();
  for (const FlagSpec& flag : FlagsOf("train")) {
    const std::string why = Given(flag.name) ? WhyNoEffect(flag.name, {.has_data = false}) : "";
    if (why.starts_with("there is no --data")) return Invalid(Shown(flag.name), ": has no effect: ", why);
  }
  return absl::OkStatus();
}

// What would end the run at its first step.
absl::Status CheckWork(const TrainSetup& s, const PreparedModel& prepared) {
  const auto trained = [](const WeightDecision& w) { return w.trained; };
  if (std::none_of(prepared.weights.begin(), prepared.weights.end(), trained)) {
    return Invalid("nothing to train: ", prepared.weights.empty()
                                             ? "the model has no weights"
                                             : StrCat("no weight is trainable ('", prepared.weights[0].name,
                                                      "': ", prepared.weights[0].why, ")"));
  }
  const int64_t samples = s.data.bound.dataset->size();
  if (FLAGS_drop_last && samples < s.batch.global) {
    return Invalid("--drop-last: ", samples, " samples make no batch of ", s.batch.global, " (--batch-size)");
  }
  return absl::OkStatus();
}

absl::Status CheckRequirements(const TrainSetup& s, const LossChoice& loss, const std::vector<std::string>& metrics) {
  for (const Requirement& r : s.requirements) {
    const bool listed = std::find(metrics.begin(), metrics.end(), r.metric) != metrics.end();
    const bool of_eval = listed || r.metric == "loss" || r.metric == "accuracy" || r.metric.starts_with("eval");
    if (of_eval && !s.has_eval())
      return Invalid("--require ", r.metric, ": there is no evaluation data (--eval-data, --eval-split)");
    if (!listed && r.metric.ends_with("accuracy") && !loss.classes)
      return Invalid("--require ", r.metric, ": loss ", loss.name, " has no accuracy");
  }
  return absl::OkStatus();
}

// What a run holds beside its session: samples in memory, and the batches that are trained on and read ahead.
int64_t HeldBytes(const TrainSetup& s) {
  int64_t bytes = s.data.bound.dataset->held_bytes();
  if (s.has_eval() && !CarvesEvalData()) bytes += s.eval.bound.dataset->held_bytes();
  const int64_t ahead = int64_t{s.options.num_workers} * s.options.prefetch_factor;
  const int64_t batches = std::min(s.options.epochs * s.steps.per_epoch, ahead + 1);
  return bytes + batches * BatchBytes(s.train_data, std::min(s.batch.global, s.train_data.dataset->size()));
}

// The same of an evaluation, for each sample of a micro-batch.
int64_t HeldPerSample(const TrainSetup& s) {
  return s.has_eval() ? (s.options.num_workers * LoaderOptions().prefetch_factor + 1) * BatchBytes(s.eval_data, 1) : 0;
}

}  // namespace

int64_t TrainSetup::trained_parameters() const {
  int64_t total = 0;
  for (const WeightDecision& w : session->weights()) total += w.trained ? w.type.elements() : 0;
  return total;
}

absl::StatusOr<std::unique_ptr<TrainSetup>> SetUpTraining() {
  auto s = std::make_unique<TrainSetup>();
  s->resident_at_start = PeakResidentBytes();
  ASSIGN_OR_RETURN(s->model, LoadKnownModel());
  RETURN_IF_ERROR(CheckEarly(*s));
  const std::string out = FLAGS_out.empty() ? DefaultOutputFolder(FLAGS_model) : FLAGS_out;
  std::vector<std::string> inputs = {FLAGS_model, PreprocessPath(FLAGS_model)};
  for (const std::string& path : {FLAGS_data, FLAGS_eval_data}) {
    if (!path.empty()) inputs.push_back(path);
  }
  ASSIGN_OR_RETURN(s->folder, OutputFolder::Open(out, FLAGS_overwrite, inputs));
  RETURN_IF_ERROR(OpenTrainingData(*s));
  RETURN_IF_ERROR(OpenEvalData(*s));
  RETURN_IF_ERROR(PlanRun(*s));
  RETURN_IF_ERROR(PlanIntervals(*s));
  RETURN_IF_ERROR(ReadOptimizerFlags(*s));
  ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(*s->model, s->data.bound, s->loss_spec, s->batch.micro));
  ASSIGN_OR_RETURN(const PreparedModel prepared, PrepareFor(*s->model, s->data.bound, options, true));
  RETURN_IF_ERROR(CheckWork(*s, prepared));
  RETURN_IF_ERROR(ChooseMetrics(options.metrics, prepared.loss).status());
  s->facts = FactsOf(*s, prepared.loss);
  RETURN_IF_ERROR(CheckEffects(s->facts));
  RETURN_IF_ERROR(ChooseRate(prepared, *s));
  ASSIGN_OR_RETURN(s->train_data, MakeTrainData(s->data.bound, prepared.loss, FLAGS_ignore_index));
  if (s->eval.bound.dataset != nullptr) {
    ASSIGN_OR_RETURN(s->eval_data, MakeTrainData(s->eval.bound, prepared.loss, FLAGS_ignore_index));
  }
  RETURN_IF_ERROR(CheckRequirements(*s, prepared.loss, EvalNames(prepared.loss, options.metrics)));
  RETURN_IF_ERROR(SetUpPlateau(*s, prepared.loss, EvalNames(prepared.loss, options.metrics)));
  s->threads = ComputeThreads();
  ASSIGN_OR_RETURN(s->backend, LoadBackend(FLAGS_backend));
  if (FLAGS_on_nonfinite == "abort") s->options.most_skips = 1;
  options.optimizer = s->optimizer;
  options.schedule = s->schedule;
  ASSIGN_OR_RETURN(options.recompute, MemoryFlags());
  options.caller_bytes = HeldBytes(*s);
  options.caller_bytes_per_sample = HeldPerSample(*s);
  ASSIGN_OR_RETURN(s->precision, SetPrecisionAndBatch(s->model, *s->backend, s->train_data.dataset->size(), &s->batch, &options));
  ASSIGN_OR_RETURN(s->session, Session::Create(s->model, s->backend.get(), std::move(options)));
  return s;
}

std::vector<FlagDefault> Resolved(const TrainSetup& s) {
  std::vector<FlagDefault> resolved = {
      {"out", s.folder->path()},
      {"batch_size", StrCat(s.batch.global)},
      {"micro_batch_size", AutoMicroBatch() ? "auto" : StrCat(s.batch.micro)},
      {"lr", StrCat(s.unscaled_lr)},
      {"mixed_precision", s.precision.name},
      {"max_grad_norm", StrCat(s.optimizer.max_grad_norm)},
      {"momentum", StrCat(s.optimizer.momentum)},
      {"betas", StrCat(s.optimizer.beta1, ",", s.optimizer.beta2)},
      {"eps", StrCat(s.optimizer.eps)},
      {"num_workers", StrCat(s.options.num_workers)},
      {"threads", StrCat(s.threads)},
      {"backend", s.backend->name()},
      {"device", s.backend->device()},
  };
  for (const std::string& rate : Values("lr")) {
    if (rate.find('=') != std::string::npos) resolved.push_back({"lr", rate});
  }
  std::erase_if(resolved, [&](const FlagDefault& d) { return !WhyNoEffect(d.name, s.facts).empty(); });
  if (!AutoMicroBatch()) resolved.push_back({"gradient_accumulation_steps", StrCat(s.batch.accumulation)});
  if (s.data.bound.has_images) resolved.push_back({"normalize", s.data.normalize});
  const auto known = [&](const std::string& name) {
    return std::any_of(resolved.begin(), resolved.end(), [&](const FlagDefault& d) { return d.name == name; });
  };
  std::vector<FlagDefault> more;
  for (FlagDefault& d : Defaults("train")) {
    const bool meaningless = d.name == "max_steps" || d.name == "dropout" || d.name == "gradient_accumulation_steps" || !WhyNoEffect(d.name, s.facts).empty();
    if (!meaningless && !known(d.name)) more.push_back(std::move(d));
  }
  if (s.steps.max_steps > 0 && !Given("epochs"))
    std::erase_if(more, [](const FlagDefault& d) { return d.name == "epochs"; });
  resolved.insert(resolved.end(), more.begin(), more.end());
  return resolved;
}

}  // namespace onnxtrain::cli
