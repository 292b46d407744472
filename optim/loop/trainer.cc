#include "optim/loop/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "frontend/base/status.h"
#include "optim/parallel/gather.h"
#include "optim/record/telemetry/statistics.h"
#include "optim/record/telemetry/trace.h"

namespace onnxtrain {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The second update that a process makes and two more: the first one compiles and finds caches cold.
StepRange TimedUpdates(int64_t done) { return {done + 2, done + 4}; }

class Loop {
 public:
  Loop(Session& session, const TrainData& train, const TrainData& eval, const TrainOptions& options,
       const std::function<void(const TrainEvent&)>& on_event)
      : session_(session),
        train_(train),
        eval_(eval),
        options_(options),
        on_event_(on_event),
        per_epoch_(CountBatches(*train.dataset, train.specs, MakeLoaderOptions(options))),
        log_every_(options.log_every > 0 ? options.log_every : std::clamp<int64_t>(per_epoch_ / 20, 1, 500)),
        batch_(FeedNames(train.specs)) {}

  absl::StatusOr<TrainResult> Run();

 private:
  absl::Status NextBatch(Loader& loader);
  void ExplainFirstSkip();
  absl::Status CompareRanks();
  absl::Status Update();
  absl::Status AgreeOnBatch(const absl::Status& status);
  absl::Status NextUpdate(Loader& loader);
  absl::Status TracedUpdate(Trace& trace, Loader& loader);
  absl::Status RecordedUpdate(Trace& trace);
  bool IsTimed(int64_t step) const { return looks_at_updates_ && phases_->steps().Covers(step); }
  PhaseShares MeasuredPhases() const;
  absl::Status FindOutliers();
  void AddOutlier(Outlier::Of of, double value);
  absl::Status Log();
  absl::Status EvaluateNow(EvalMetrics* metrics);
  bool LogIsDue() const;
  bool EvalIsDue() const;
  // Several ranks stop when all of them know that one is to.
  bool Stopped() const { return ranks_ != nullptr ? Agreed(kRequestStop) : StopAsked(); }
  bool StopAsked() const { return options_.stop != nullptr && options_.stop->load(); }
  bool TimeIsOver() const { return options_.max_seconds > 0 && Since(start_) >= options_.max_seconds; }
  bool EvalTimeHasCome() const { return options_.eval_seconds > 0 && Since(evaluated_at_) >= options_.eval_seconds; }
  bool FailedTogether() const { return ranks_ != nullptr && ranks_->failed_together(); }
  bool MaySave(const absl::Status& ended) const;
  bool Agreed(RankRequest request) const { return (ranks_->agreed() & request) != 0; }
  bool SaveTimeHasCome() const {
    return options_.save && options_.save_seconds > 0 && Since(saved_at_) >= options_.save_seconds;
  }
  bool TakeSaveRequest();
  void AskRanks();
  bool SaveIsDue() const;
  bool IsBest(const EvalMetrics& metrics);
  absl::Status GatherForSave(SaveReason reason);
  void Save(SaveReason reason);
  void Resume(const LoopPosition& position);
  absl::Status ReportAndEvaluate();
  absl::Status EndEarly(const absl::Status& status);
  absl::Status Updates();
  std::string StopReason() const;  // "": continue
  int64_t Patience() const { return options_.patience > 0 ? options_.patience : std::numeric_limits<int64_t>::max(); }
  double Monitored(const EvalMetrics& metrics) const {
    return FindEvalMetric(metrics, options_.monitor).value_or(std::numeric_limits<double>::quiet_NaN());
  }
  double Seconds() const { return before_.seconds + Since(start_); }
  double Epochs() const { return static_cast<double>(result_.steps) / static_cast<double>(per_epoch_); }

  Session& session_;
  const TrainData& train_;
  const TrainData& eval_;
  const TrainOptions& options_;
  const std::function<void(const TrainEvent&)>& on_event_;
  const int64_t per_epoch_, log_every_;
  const Clock::time_point start_ = Clock::now();
  GlobalBatch batch_;  // the current one
  LoopPosition at_;
  TrainResult& result_ = at_.result;
  TrainResult before_;  // of the runs that this one continues
  DataParallel* const ranks_ = options_.ranks;
  int64_t skipped_in_a_row_ = 0, saved_step_ = 0;
  ResourceMonitor resources_;
  std::optional<Trace> phases_;  // of a few updates, for the summary, where options_.trace does not record them
  double recorded_seconds_ = 0;  // of computing, in updates whose nodes were recorded
  Durations durations_;          // of updates
  double logged_data_seconds_ = 0, updated_data_seconds_ = 0;
  bool looks_at_updates_ = false;  // for outliers
  bool intact_ = true;             // the session holds the weights of a whole number of updates
  Clock::time_point logged_at_ = start_, evaluated_at_ = start_, saved_at_ = start_;
};

// What the clock and the signals of one rank say counts for all, from the end of the next update on.
void Loop::AskRanks() {
  unsigned requests = 0;
  if (StopAsked()) requests |= kRequestStop;
  if (TimeIsOver()) requests |= kRequestEndOfTime;
  if (EvalTimeHasCome()) requests |= kRequestEvaluation;
  const bool asked = options_.save_now != nullptr && options_.save_now->load();
  if (asked || (session_.divides_moments() && SaveTimeHasCome())) requests |= kRequestSave;
  ranks_->Ask(requests);
}

// What one of several ranks has been asked for counts from its next update on.
bool Loop::TakeSaveRequest() {
  if (ranks_ != nullptr && !Agreed(kRequestSave)) return false;
  const bool own = options_.save_now != nullptr && options_.save_now->exchange(false);
  return own || ranks_ != nullptr;
}

absl::Status Loop::Update() {
  const double compiled = session_.compile_seconds();
  const auto start = Clock::now();
  const absl::Status stepped = session_.Step(batch_);
  // What other ranks could not take part in, or what they have failed in together, changes no weight.
  intact_ = stepped.ok() || absl::IsCancelled(stepped) || FailedTogether() ||
            (absl::IsUnavailable(stepped) && !session_.divides_moments());
  RETURN_IF_ERROR(stepped);
  const double seconds = Since(start) - (session_.compile_seconds() - compiled);
  result_.compute_seconds += seconds;
  durations_.Add(seconds + result_.data_seconds - updated_data_seconds_);
  updated_data_seconds_ = result_.data_seconds;
  ASSIGN_OR_RETURN(skipped_in_a_row_, session_.SkippedInARow());
  ++result_.steps;
  result_.samples += batch_.samples();
  if (result_.steps == 1 && skipped_in_a_row_ > 0) ExplainFirstSkip();
  return FindOutliers();
}

// Later gradients may have grown; the first one is not finite for a reason that the model or the data has.
void Loop::ExplainFirstSkip() {
  if (!options_.on_not_finite || ranks_ != nullptr) return;
  const absl::StatusOr<std::string> where = session_.FindNonFinite(batch_);
  if (where.ok() && !where->empty()) options_.on_not_finite(*where);
}

// Weights that differ are not saved.
absl::Status Loop::CompareRanks() {
  const int64_t every = options_.compare_weights_every;
  if (ranks_ == nullptr || every == 0 || result_.steps % every != 0) return absl::OkStatus();
  const absl::Status same = CompareWeights(session_, *ranks_);
  intact_ = same.ok() || absl::IsUnavailable(same);
  return same;
}

absl::Status Loop::NextBatch(Loader& loader) {
  const Span span(options_.trace, Trace::kTraining, "data wait");
  ASSIGN_OR_RETURN(const Batch* batch, loader.Next());
  result_.data_seconds = before_.data_seconds + loader.waited_seconds();
  SetTensors(*batch, &batch_);
  if (options_.trace != nullptr)
    options_.trace->Add(Trace::kFirstWorker + batch->worker, "fill batch", batch->fill_begin, batch->fill_end);
  return options_.on_batch ? options_.on_batch(result_.steps + 1, *batch) : absl::OkStatus();
}

absl::Status Loop::NextUpdate(Loader& loader) {
  if (ranks_ != nullptr) AskRanks();
  if (options_.trace != nullptr) return TracedUpdate(*options_.trace, loader);
  RETURN_IF_ERROR(AgreeOnBatch(NextBatch(loader)));
  return IsTimed(result_.steps + 1) ? RecordedUpdate(*phases_) : Update();
}

absl::Status Loop::RecordedUpdate(Trace& trace) {
  const double before = result_.compute_seconds;
  session_.SetTrace(&trace);
  const absl::Status status = Update();
  session_.SetTrace(nullptr);
  recorded_seconds_ += result_.compute_seconds - before;
  return status;
}

// The other ranks wait in their update for one that has no batch.
absl::Status Loop::AgreeOnBatch(const absl::Status& status) {
  return ranks_ == nullptr || status.ok() ? status : ranks_->ExchangeFailure(status);
}

absl::Status Loop::TracedUpdate(Trace& trace, Loader& loader) {
  const int64_t step = result_.steps + 1;
  const auto begin = Clock::now();
  trace.BeginUpdate(step);
  RETURN_IF_ERROR(AgreeOnBatch(NextBatch(loader)));
  const absl::Status status = trace.steps().Covers(step) ? RecordedUpdate(trace) : Update();
  trace.EndUpdate(step, begin);
  return status;
}

void Loop::AddOutlier(Outlier::Of of, double value) {
  OutlierWindow& window = of == Outlier::Of::kLoss ? at_.losses : at_.grad_norms;
  if (const auto median = window.Add(value)) at_.outliers.push_back({of, result_.steps, value, *median});
}

// Where the host does not know the values of every update, the reports have to do.
absl::Status Loop::FindOutliers() {
  ASSIGN_OR_RETURN(const std::optional<UpdateValues> last, session_.LastUpdate());
  if (!last) return absl::OkStatus();
  AddOutlier(Outlier::Of::kLoss, last->loss);
  AddOutlier(Outlier::Of::kGradNorm, last->grad_norm);
  looks_at_updates_ = true;
  return absl::OkStatus();
}

absl::Status Loop::Log() {
  if (at_.logged_step == result_.steps) return absl::OkStatus();
  const auto start = Clock::now();
  ASSIGN_OR_RETURN(const StepReport report, session_.Report());
  result_.compute_seconds += Since(start);  // waits for queued work
  result_.skipped_steps += report.skipped;
  // Skipped updates do not count.
  result_.final_loss = report.weight > 0 ? report.loss : std::numeric_limits<double>::quiet_NaN();
  if (!looks_at_updates_) {
    AddOutlier(Outlier::Of::kLoss, result_.final_loss);
    AddOutlier(Outlier::Of::kGradNorm, report.grad_norm);
  }
  TrainEvent event{.kind = TrainEvent::Kind::kStep,
                   .step = result_.steps,
                   .epoch = Epochs(),
                   .seconds = Seconds(),
                   .report = report,
                   .resources = resources_.Take(),
                   .outliers = std::exchange(at_.outliers, {})};
  const double seconds = result_.compute_seconds + result_.data_seconds - at_.logged_seconds;
  if (seconds > 0) {
    event.samples_per_second = static_cast<double>(result_.samples - at_.logged_samples) / seconds;
    event.data_wait = (result_.data_seconds - logged_data_seconds_) / seconds;
  }
  logged_data_seconds_ = result_.data_seconds;
  at_.logged_step = result_.steps;
  at_.logged_samples = result_.samples;
  at_.logged_seconds = result_.compute_seconds + result_.data_seconds;
  logged_at_ = Clock::now();
  on_event_(event);
  return absl::OkStatus();
}

absl::Status Loop::EvaluateNow(EvalMetrics* metrics) {
  if (eval_.dataset == nullptr || at_.evaluated_step == result_.steps) return absl::OkStatus();
  const auto start = Clock::now();
  const double compiled = session_.compile_seconds();
  const Span span(options_.trace, Trace::kTraining, "evaluation");
  auto evaluated = EvaluateAll(session_, eval_, options_.num_workers, options_.stop, ranks_);
  result_.eval_seconds += Since(start) - (session_.compile_seconds() - compiled);
  if (absl::IsCancelled(evaluated.status())) return absl::OkStatus();  // see StopReason()
  if (!evaluated.ok()) return evaluated.status();
  *metrics = *evaluated;
  if (options_.plateau != nullptr && result_.steps > 0)
    RETURN_IF_ERROR(session_.SetPlateau(options_.plateau->Step(Monitored(*metrics))));
  at_.evaluated_step = result_.steps;
  evaluated_at_ = Clock::now();
  on_event_({.kind = TrainEvent::Kind::kEval,
             .step = result_.steps,
             .epoch = Epochs(),
             .seconds = Seconds(),
             .eval = *metrics});
  return absl::OkStatus();
}

bool Loop::LogIsDue() const {
  if (options_.log_seconds > 0) return Since(logged_at_) >= options_.log_seconds;
  return result_.steps % log_every_ == 0;
}

bool Loop::EvalIsDue() const {
  if (options_.eval_seconds > 0) return ranks_ != nullptr ? Agreed(kRequestEvaluation) : EvalTimeHasCome();
  const int64_t every = options_.eval_every > 0 ? options_.eval_every : per_epoch_;
  return result_.steps % every == 0;
}

// Ranks that have to save together have asked each other for it.
bool Loop::SaveIsDue() const {
  if (!options_.save && !session_.divides_moments()) return false;
  if (options_.save_seconds > 0) return !session_.divides_moments() && SaveTimeHasCome();
  return options_.save_every > 0 && result_.steps % options_.save_every == 0;
}

PhaseShares Loop::MeasuredPhases() const {
  if (recorded_seconds_ <= 0) return {};
  const PhaseSeconds p = (options_.trace != nullptr ? options_.trace : &*phases_)->Phases();
  const auto share = [&](double seconds) { return std::min(1.0, seconds / recorded_seconds_); };
  return {share(p.copy), share(p.forward), share(p.backward), share(p.update)};
}

// NaN is never better.
bool Loop::IsBest(const EvalMetrics& metrics) {
  const double metric = Monitored(metrics);
  const bool first = at_.best.step < 0 && !std::isnan(metric);
  const bool better = first || (options_.monitor_max ? metric > at_.best.metric : metric < at_.best.metric);
  if (better) {
    at_.best = {.step = result_.steps, .metric = metric};
  } else {
    ++at_.best.worse_since;
  }
  return better;
}

// Ranks that write their parts, or no checkpoint, send nothing, but for the model that rank 0 writes at the end.
absl::Status Loop::GatherForSave(SaveReason reason) {
  const bool parts = ranks_ != nullptr && ranks_->saves_parts();
  if (options_.saves_state && !parts) return session_.GatherState();
  return reason == SaveReason::kEnd ? session_.GatherWeights() : absl::OkStatus();
}

// Where the moments are divided, all ranks come here together; one that saves nothing sends its own.
void Loop::Save(SaveReason reason) {
  if ((!options_.save && !session_.divides_moments()) || result_.steps == 0) return;
  if (saved_step_ == result_.steps && reason != SaveReason::kBest && reason != SaveReason::kEnd) return;
  const auto start = Clock::now();
  if (options_.plateau != nullptr) at_.plateau = options_.plateau->state();
  LoopPosition position = at_;
  position.result.seconds = Seconds();
  position.result.compile_seconds += session_.compile_seconds();
  position.result.oom_retries = session_.oom_retries();
  const Span span(options_.trace, Trace::kTraining, "checkpoint");
  if (!GatherForSave(reason).ok()) return;  // the next update fails, too
  if (options_.save) options_.save(position, reason);
  session_.ReleaseGathered();
  saved_step_ = result_.steps;
  saved_at_ = Clock::now();
  result_.checkpoint_seconds += Since(start);
  if (reason != SaveReason::kEnd)  // which waits for the disk
    result_.checkpoint_pause_seconds = std::max(result_.checkpoint_pause_seconds, Since(start));
}

void Loop::Resume(const LoopPosition& position) {
  at_ = position;
  before_ = position.result;
  saved_step_ = result_.steps;
  logged_data_seconds_ = updated_data_seconds_ = result_.data_seconds;
  if (options_.plateau != nullptr) options_.plateau->Restore(position.plateau);
}

std::string Loop::StopReason() const {
  if (Stopped()) return "signal";
  if (skipped_in_a_row_ >= options_.max_consecutive_skips) return "not_finite";
  if (options_.max_steps > 0 && result_.steps >= options_.max_steps) return "max_steps";
  if (ranks_ != nullptr ? Agreed(kRequestEndOfTime) : TimeIsOver()) return "max_time";
  if (at_.best.worse_since >= Patience()) return "early_stopping";
  return result_.steps / per_epoch_ >= options_.epochs ? "epochs" : "";
}

absl::Status Loop::ReportAndEvaluate() {
  if (LogIsDue()) RETURN_IF_ERROR(Log());
  if (eval_.dataset == nullptr || !EvalIsDue() || at_.evaluated_step == result_.steps) return absl::OkStatus();
  RETURN_IF_ERROR(Log());
  RETURN_IF_ERROR(EvaluateNow(&result_.eval));
  const bool evaluated = at_.evaluated_step == result_.steps;  // a signal ends an evaluation
  if (!evaluated || !IsBest(result_.eval) || !options_.save_best) return absl::OkStatus();
  if (StopReason().empty()) Save(SaveReason::kBest);  // else that of the end is the best one
  return absl::OkStatus();
}

// A signal ends an update and the wait for a batch; the data may end before the run does.
absl::Status Loop::EndEarly(const absl::Status& status) {
  if (absl::IsCancelled(status)) result_.stop_reason = "signal";
  if (absl::IsOutOfRange(status) && train_.dataset->streams()) result_.stop_reason = "end_of_data";
  return result_.stop_reason.empty() ? status : absl::OkStatus();
}

absl::Status Loop::Updates() {
  // A signal may have come between an update and its evaluation.
  if (options_.resume && result_.steps > 0) RETURN_IF_ERROR(ReportAndEvaluate());
  result_.stop_reason = StopReason();
  if (!result_.stop_reason.empty()) return absl::OkStatus();
  const int64_t epoch = result_.steps / per_epoch_;
  LoaderOptions load = MakeLoaderOptions(options_);
  load.first_epoch = epoch;
  load.first_batch = result_.steps % per_epoch_;
  load.epochs = options_.epochs - epoch;
  ASSIGN_OR_RETURN(auto loader, Loader::Create(train_.dataset, train_.specs, load));
  while (result_.stop_reason.empty()) {
    const absl::Status updated = NextUpdate(*loader);
    if (!updated.ok()) return EndEarly(updated);
    RETURN_IF_ERROR(CompareRanks());
    RETURN_IF_ERROR(ReportAndEvaluate());
    if (TakeSaveRequest()) Save(SaveReason::kAsked);
    result_.stop_reason = StopReason();
    if (result_.stop_reason.empty() && SaveIsDue()) Save(SaveReason::kInterval);
  }
  return absl::OkStatus();
}

// Where the moments are divided, all ranks save or none: each must know how the others have ended.
bool Loop::MaySave(const absl::Status& ended) const {
  return ended.ok() || FailedTogether() || ranks_ == nullptr || !session_.divides_moments();
}

absl::StatusOr<TrainResult> Loop::Run() {
  if (options_.resume) Resume(*options_.resume);
  phases_.emplace(TimedUpdates(result_.steps), std::vector<std::pair<std::string, std::string>>());
  if (!options_.resume) RETURN_IF_ERROR(EvaluateNow(&result_.eval_before));
  const absl::Status updates = Updates();
  // Before the last report and evaluation, which a run that goes on from here does not have.
  if (intact_ && MaySave(updates)) Save(SaveReason::kEnd);
  RETURN_IF_ERROR(updates);
  RETURN_IF_ERROR(Log());
  // A signal asks for a quick end: no final evaluation.
  if (result_.stop_reason != "signal" && result_.stop_reason != "not_finite" && eval_.dataset != nullptr) {
    const bool again = at_.evaluated_step == result_.steps;
    RETURN_IF_ERROR(EvaluateNow(&result_.eval));
    if (at_.evaluated_step != result_.steps) result_.stop_reason = "signal";
    if (!again && result_.steps > 0 && IsBest(result_.eval) && options_.save_best) Save(SaveReason::kBest);
  }
  if (result_.steps == 0) result_.eval = result_.eval_before;
  result_.epochs = Epochs();
  result_.compile_seconds += session_.compile_seconds();
  result_.oom_retries = session_.oom_retries();
  result_.phases = MeasuredPhases();
  if (ranks_ != nullptr) result_.communication = ranks_->time();
  result_.seconds = Seconds();
  result_.step_median_seconds = durations_.Quantile(0.5);
  result_.step_p95_seconds = durations_.Quantile(0.95);
  return result_;
}

}  // namespace

LoaderOptions MakeLoaderOptions(const TrainOptions& options) {
  return {.batch_size = options.batch_size,
          .drop_last = options.drop_last,
          .shuffle = options.shuffle,
          .seed = options.seed,
          .augment = true,
          .mix = options.mix,
          .length_grouping = options.length_grouping,
          .tokens = options.tokens,
          .num_workers = options.num_workers,
          .max_workers = options.max_workers,
          .prefetch_factor = options.prefetch_factor,
          .epochs = options.epochs};
}

std::vector<std::string> FeedNames(const std::vector<FeedSpec>& specs) {
  std::vector<std::string> names;
  for (const FeedSpec& spec : specs) names.push_back(spec.feed);
  return names;
}

void SetTensors(const Batch& batch, GlobalBatch* global_batch) {
  const auto set = [](std::span<const HostTensor> tensors, GlobalBatch* part) {
    for (size_t i = 0; i < tensors.size(); ++i) part->Set(i, tensors[i]);
  };
  set(batch.tensors, global_batch);
  std::vector<GlobalBatch>& further = global_batch->ResizeFurther(batch.further.size());
  for (size_t p = 0; p < further.size(); ++p) set(batch.further[p], &further[p]);
}

namespace {

// What standardized targets were divided by, for each metric; of text, tokens per unit.
std::vector<std::vector<double>> TargetUnits(const Session& session, const TrainData& data) {
  std::vector<std::vector<double>> units;
  for (const Metric& metric : session.metrics()) {
    if (metric.row->per_token != nullptr) {
      const double per_token = metric.row->per_token(data.text_unit);
      units.push_back({per_token > 0 ? 1 / per_token : std::numeric_limits<double>::quiet_NaN()});
      continue;
    }
    const std::string& feed = session.loss().terms[metric.term].feed;
    const auto spec = std::ranges::find(data.specs, feed, &FeedSpec::feed);
    units.push_back(spec != data.specs.end() ? spec->divisor : std::vector<double>());
  }
  return units;
}

std::vector<std::pair<std::string, double>> NamedMetrics(const Session& session, const TrainData& data,
                                                         const Evaluation& total) {
  std::vector<double> values = total.metrics.Values(session.metrics(), TargetUnits(session, data));
  std::vector<std::string> names;
  for (const Metric& metric : session.metrics()) names.push_back(metric.name);
  for (size_t t = 0; t < session.loss().terms.size(); ++t) {
    values.push_back(total.weights[t] > 0 ? total.loss_sums[t] / total.weights[t]
                                          : std::numeric_limits<double>::quiet_NaN());
  }
  std::vector<std::pair<std::string, double>> named;
  for (const std::string& name : EvalNames(session.loss(), names)) named.emplace_back(name, values[named.size()]);
  return named;
}

// The batches that a rank evaluates.
class EvaluatedBatches {
 public:
  EvaluatedBatches(Session& session, const TrainData& data, const std::atomic<bool>* stop)
      : session_(session), data_(data), stop_(stop), global_batch_(FeedNames(data.specs)) {}

  absl::Status Open(const LoaderOptions& load) {
    batches_ = CountBatches(*data_.dataset, data_.specs, load);
    if (load.first_batch >= batches_) return absl::OkStatus();  // for other ranks
    ASSIGN_OR_RETURN(loader_, Loader::Create(data_.dataset, data_.specs, load));
    return absl::OkStatus();
  }
  int64_t batches() const { return batches_; }  // of all ranks

  // Adds the next batch, where there is one, and returns whether there was.
  absl::StatusOr<bool> AddNext(Evaluation* total, int64_t* samples) {
    ASSIGN_OR_RETURN(const int64_t count, TakeNext());
    if (count > 0) RETURN_IF_ERROR(AddTaken(count, total, samples));
    return count > 0;
  }

  // Reads the next batch and returns its samples; 0: there is none.
  absl::StatusOr<int64_t> TakeNext() {
    if (loader_ == nullptr) return 0;
    ASSIGN_OR_RETURN(const Batch* batch, loader_->Next());
    if (batch == nullptr) return 0;
    if (stop_ != nullptr && stop_->load()) return absl::CancelledError("stopped by a signal");
    SetTensors(*batch, &global_batch_);
    return static_cast<int64_t>(batch->samples.size());
  }

  // Adds the batch that was read last.
  absl::Status AddTaken(int64_t count, Evaluation* total, int64_t* samples) {
    ASSIGN_OR_RETURN(const Evaluation e, session_.Evaluate(global_batch_));
    AddEvaluation(session_.metrics(), e, total);
    *samples += count;
    return absl::OkStatus();
  }

  absl::Status AddAll(Evaluation* total, int64_t* samples) {
    while (true) {
      ASSIGN_OR_RETURN(const bool more, AddNext(total, samples));
      if (!more) return absl::OkStatus();
    }
  }

 private:
  Session& session_;
  const TrainData& data_;
  const std::atomic<bool>* const stop_;
  GlobalBatch global_batch_;
  std::unique_ptr<Loader> loader_;  // null: no batch
  int64_t batches_ = 0;
};

// Adds one batch of every rank at a time: the order of the sums is that of one rank.
absl::Status EvaluateInOrder(Session& session, DataParallel& ranks, absl::Status opened, EvaluatedBatches& batches,
                             Evaluation* total, int64_t* samples) {
  for (int64_t at = 0; at < batches.batches(); at += ranks.size()) {
    Evaluation own;
    int64_t own_samples = 0;
    if (opened.ok()) opened = batches.AddNext(&own, &own_samples).status();
    RETURN_IF_ERROR(GatherEvaluation(ranks, opened, session.metrics(), own, own_samples, total, samples));
  }
  return absl::OkStatus();
}

// Every stage takes part in every batch; the last one knows the results.
absl::Status EvaluateInStages(Session& session, DataParallel& ranks, const absl::Status& opened,
                              EvaluatedBatches& batches, Evaluation* total, int64_t* samples) {
  Evaluation own;
  int64_t own_samples = 0;
  for (bool more = true; more;) {
    absl::StatusOr<int64_t> count = 0;
    if (opened.ok()) count = batches.TakeNext();
    RETURN_IF_ERROR(ranks.Agree("evaluation", opened.ok() ? count.status() : opened));
    more = *count > 0;
    if (more) RETURN_IF_ERROR(batches.AddTaken(*count, &own, &own_samples));
  }
  if (ranks.rank() + 1 < ranks.size()) own_samples = 0;
  return GatherEvaluation(ranks, absl::OkStatus(), session.metrics(), own, own_samples, total, samples);
}

absl::Status EvaluateOnRanks(Session& session, DataParallel& ranks, const LoaderOptions& load,
                             EvaluatedBatches& batches, Evaluation* total, int64_t* samples) {
  absl::Status evaluated = batches.Open(load);
  if (session.holds_partial_weights()) return EvaluateInStages(session, ranks, evaluated, batches, total, samples);
  if (ranks.options().in_order) return EvaluateInOrder(session, ranks, evaluated, batches, total, samples);
  Evaluation own;
  int64_t own_samples = 0;
  if (evaluated.ok()) evaluated = batches.AddAll(&own, &own_samples);
  return GatherEvaluation(ranks, evaluated, session.metrics(), own, own_samples, total, samples);
}

absl::Status EvaluateAlone(const LoaderOptions& load, EvaluatedBatches& batches, Evaluation* total, int64_t* samples) {
  RETURN_IF_ERROR(batches.Open(load));
  return batches.AddAll(total, samples);
}

absl::StatusOr<EvalMetrics> EvaluateWeights(Session& session, const TrainData& data, int num_workers,
                                            const std::atomic<bool>* stop, DataParallel* ranks) {
  constexpr int64_t kStageMicros = 16;  // stages overlap within a batch, and wait for each other between two
  LoaderOptions load{.batch_size = session.micro_batch() * (session.holds_partial_weights() ? kStageMicros : 1),
                     .tokens = session.tokens(),
                     .num_workers = num_workers};
  load.tokens.accumulation = 1;
  const bool shared = ranks != nullptr && !session.holds_partial_weights();
  if (shared) load.first_batch = ranks->rank(), load.batch_stride = ranks->size();
  Evaluation total;
  EvalMetrics metrics;
  EvaluatedBatches batches(session, data, stop);
  RETURN_IF_ERROR(ranks != nullptr ? EvaluateOnRanks(session, *ranks, load, batches, &total, &metrics.samples)
                                   : EvaluateAlone(load, batches, &total, &metrics.samples));
  if (total.weights.empty()) return metrics;
  const LossChoice& loss = session.loss();
  metrics.loss = MeanLoss(loss, total);
  if (loss.classes && total.targets > 0) metrics.accuracy = total.correct / total.targets;
  metrics.metrics = NamedMetrics(session, data, total);
  return metrics;
}

}  // namespace

absl::StatusOr<EvalMetrics> EvaluateAll(Session& session, const TrainData& data, int num_workers,
                                        const std::atomic<bool>* stop, DataParallel* ranks) {
  RETURN_IF_ERROR(session.UseAverage(true));
  auto metrics = EvaluateWeights(session, data, num_workers, stop, ranks);
  RETURN_IF_ERROR(session.UseAverage(false));
  return metrics;
}

std::vector<std::string> EvalNames(const LossChoice& loss, const std::vector<std::string>& metrics) {
  std::vector<std::string> names;
  const auto chosen = ChooseMetrics(metrics, loss);
  for (size_t m = 0; chosen.ok() && m < chosen->size(); ++m) {
    for (std::string& name : ValueNames((*chosen)[m], loss)) names.push_back(std::move(name));
  }
  for (const LossTerm& term : loss.terms) {
    if (loss.terms.size() > 1) names.push_back(StrCat(term.function->name, "@", term.output));
  }
  return names;
}

std::optional<double> FindEvalMetric(const EvalMetrics& metrics, const std::string& name) {
  for (const auto& [own, value] : metrics.metrics) {
    if (own == name) return value;
  }
  if (name == "accuracy" && metrics.accuracy >= 0) return metrics.accuracy;
  return name == "loss" ? std::optional(metrics.loss) : std::nullopt;
}

absl::StatusOr<TrainResult> Train(Session& session, const TrainData& train, const TrainData& eval,
                                  const TrainOptions& options, const std::function<void(const TrainEvent&)>& on_event) {
  auto result = Loop(session, train, eval, options, on_event).Run();
  if (options.ranks != nullptr) options.ranks->EndLoop(result.status());
  return result;
}

}  // namespace onnxtrain
