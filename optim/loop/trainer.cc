#include "optim/loop/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "frontend/base/status.h"
#include "optim/record/telemetry/statistics.h"
#include "optim/record/telemetry/trace.h"

namespace onnxtrain {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Times the second to fourth update of a process: the first one compiles and runs with cold caches.
StepRange TimedUpdates(int64_t done) { return {done + 2, done + 4}; }

class Loop {
 public:
  Loop(Session& session, const TrainData& train, const TrainData& eval, const TrainOptions& options,
       TrainObserver& observer)
      : session_(session),
        train_(train),
        eval_(eval),
        options_(options),
        observer_(observer),
        per_epoch_(CountBatches(*train.dataset, train.specs, MakeLoaderOptions(options))),
        log_every_(options.log_every > 0 ? options.log_every : std::clamp<int64_t>(per_epoch_ / 20, 1, 500)),
        batch_(FeedNames(train.specs)) {}

  absl::StatusOr<TrainResult> Run();

 private:
  absl::Status NextBatch(Loader& loader);
  void ExplainFirstSkip();
  absl::Status CompareWeights();
  absl::Status Update();
  absl::Status ShareFailure(const absl::Status& status);
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
  bool EvaluationDue() const;
  bool Stopped() const { return peers_.Follows(kRequestStop, StopRequested()); }
  bool StopRequested() const { return options_.stop != nullptr && options_.stop->load(); }
  bool TimeLimitReached() const { return options_.max_seconds > 0 && Since(start_) >= options_.max_seconds; }
  bool EvaluationTimeReached() const {
    return options_.eval_seconds > 0 && Since(evaluated_at_) >= options_.eval_seconds;
  }
  bool MaySave(const absl::Status& ended) const;
  bool SaveRequested() const { return options_.save_now != nullptr && options_.save_now->load(); }
  bool SaveTimeReached() const {
    return observer_.saves() && options_.save_seconds > 0 && Since(saved_at_) >= options_.save_seconds;
  }
  bool TakeSaveRequest();
  void AskPeers();
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
  TrainObserver& observer_;
  const int64_t per_epoch_, log_every_;
  const Clock::time_point start_ = Clock::now();
  GlobalBatch batch_;  // the current batch
  LoopPosition at_;
  TrainResult& result_ = at_.result;
  TrainResult before_;  // result of the earlier runs that this one continues
  Peers alone_;
  Peers& peers_ = options_.peers != nullptr ? *options_.peers : alone_;
  int64_t skipped_in_a_row_ = 0, saved_step_ = 0;
  ResourceMonitor resources_;
  std::optional<Trace> phases_;  // trace of a few updates for the summary, if options_.trace does not record them
  double recorded_seconds_ = 0;  // compute time of the updates whose nodes were recorded
  Durations durations_;          // durations of the updates
  double logged_data_seconds_ = 0, updated_data_seconds_ = 0;
  bool looks_at_updates_ = false;  // searches the values of every update for outliers
  bool intact_ = true;             // the session has the weights of a whole number of updates
  Clock::time_point logged_at_ = start_, evaluated_at_ = start_, saved_at_ = start_;
};

// Stop, save and evaluation requests of any peer take effect on all of them after the next update.
void Loop::AskPeers() {
  unsigned requests = 0;
  if (StopRequested()) requests |= kRequestStop;
  if (TimeLimitReached()) requests |= kRequestEndOfTime;
  if (EvaluationTimeReached()) requests |= kRequestEvaluation;
  if (SaveRequested() || (session_.divides_moments() && SaveTimeReached())) requests |= kRequestSave;
  peers_.Ask(requests);
}

bool Loop::TakeSaveRequest() {
  if (!peers_.Follows(kRequestSave, SaveRequested())) return false;
  if (options_.save_now != nullptr) options_.save_now->store(false);
  return true;
}

absl::Status Loop::Update() {
  const double compiled = session_.compile_seconds();
  const auto start = Clock::now();
  const absl::Status stepped = session_.Step(batch_);
  // An update that peers could not join, or in which all failed together, changes no weight.
  intact_ = stepped.ok() || absl::IsCancelled(stepped) || peers_.failed_together() ||
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

// Explains only the first skipped update: later gradients may have overflowed, but a first non-finite gradient has its
// cause in the model or the data.
void Loop::ExplainFirstSkip() {
  if (!peers_.alone()) return;
  const absl::StatusOr<std::string> where = session_.FindNonFinite(batch_);
  if (where.ok() && !where->empty()) observer_.OnNotFinite(*where);
}

// Fails if the weights of peers differ; such weights are not saved.
absl::Status Loop::CompareWeights() {
  const int64_t every = options_.compare_weights_every;
  if (peers_.alone() || every == 0 || result_.steps % every != 0) return absl::OkStatus();
  const absl::Status same = peers_.CompareWeights(session_);
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
  return observer_.OnBatch(result_.steps + 1, *batch);
}

absl::Status Loop::NextUpdate(Loader& loader) {
  AskPeers();
  if (options_.trace != nullptr) return TracedUpdate(*options_.trace, loader);
  RETURN_IF_ERROR(ShareFailure(NextBatch(loader)));
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

// Reports a failure to read a batch: the other peers wait for this one in their update.
absl::Status Loop::ShareFailure(const absl::Status& status) {
  return status.ok() ? status : peers_.ExchangeFailure(status);
}

absl::Status Loop::TracedUpdate(Trace& trace, Loader& loader) {
  const int64_t step = result_.steps + 1;
  const auto begin = Clock::now();
  trace.BeginUpdate(step);
  RETURN_IF_ERROR(ShareFailure(NextBatch(loader)));
  const absl::Status status = trace.steps().Covers(step) ? RecordedUpdate(trace) : Update();
  trace.EndUpdate(step, begin);
  return status;
}

void Loop::AddOutlier(Outlier::Of of, double value) {
  OutlierWindow& window = of == Outlier::Of::kLoss ? at_.losses : at_.grad_norms;
  if (const auto median = window.Add(value)) at_.outliers.push_back({of, result_.steps, value, *median});
}

// Checks the values of every update; if the host does not read them, Log checks the averages of the reports.
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
  // Skipped updates are not counted.
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
  observer_.OnEvent(event);
  return absl::OkStatus();
}

absl::Status Loop::EvaluateNow(EvalMetrics* metrics) {
  if (eval_.dataset == nullptr || at_.evaluated_step == result_.steps) return absl::OkStatus();
  const auto start = Clock::now();
  const double compiled = session_.compile_seconds();
  const Span span(options_.trace, Trace::kTraining, "evaluation");
  auto evaluated = EvaluateAll(session_, eval_, options_.num_workers, options_.stop, &peers_);
  result_.eval_seconds += Since(start) - (session_.compile_seconds() - compiled);
  if (absl::IsCancelled(evaluated.status())) return absl::OkStatus();  // see StopReason()
  if (!evaluated.ok()) return evaluated.status();
  *metrics = *evaluated;
  if (options_.plateau != nullptr && result_.steps > 0)
    RETURN_IF_ERROR(session_.SetPlateau(options_.plateau->Step(Monitored(*metrics))));
  at_.evaluated_step = result_.steps;
  const auto observed = Clock::now();
  observer_.OnEvent({.kind = TrainEvent::Kind::kEval,
                     .step = result_.steps,
                     .epoch = Epochs(),
                     .seconds = Seconds(),
                     .eval = *metrics});
  result_.eval_seconds += Since(observed);  // the observer may evaluate more
  evaluated_at_ = Clock::now();
  return absl::OkStatus();
}

bool Loop::LogIsDue() const {
  if (options_.log_seconds > 0) return Since(logged_at_) >= options_.log_seconds;
  return result_.steps % log_every_ == 0;
}

bool Loop::EvaluationDue() const {
  if (options_.eval_seconds > 0) return peers_.Follows(kRequestEvaluation, EvaluationTimeReached());
  const int64_t every = options_.eval_every > 0 ? options_.eval_every : per_epoch_;
  return result_.steps % every == 0;
}

// Peers that must save together have exchanged their requests for it.
bool Loop::SaveIsDue() const {
  if (!observer_.saves() && !session_.divides_moments()) return false;
  if (options_.save_seconds > 0) return !session_.divides_moments() && SaveTimeReached();
  return options_.save_every > 0 && result_.steps % options_.save_every == 0;
}

PhaseShares Loop::MeasuredPhases() const {
  if (recorded_seconds_ <= 0) return {};
  const PhaseSeconds p = (options_.trace != nullptr ? options_.trace : &*phases_)->Phases();
  const auto fraction = [&](double seconds) { return std::min(1.0, seconds / recorded_seconds_); };
  return {fraction(p.copy), fraction(p.forward), fraction(p.backward), fraction(p.update)};
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

// Gathers the state on the first peer. If peers write parts, or no checkpoint, gathers only the weights, at the end.
absl::Status Loop::GatherForSave(SaveReason reason) {
  if (options_.saves_state && !peers_.saves_parts()) return session_.GatherState();
  return reason == SaveReason::kEnd ? session_.GatherWeights() : absl::OkStatus();
}

// Saves a checkpoint. With sharded moments, all peers call it together; a peer that does not save sends its shard.
void Loop::Save(SaveReason reason) {
  if ((!observer_.saves() && !session_.divides_moments()) || result_.steps == 0) return;
  if (saved_step_ == result_.steps && reason != SaveReason::kBest && reason != SaveReason::kEnd) return;
  const auto start = Clock::now();
  if (options_.plateau != nullptr) at_.plateau = options_.plateau->state();
  LoopPosition position = at_;
  position.result.seconds = Seconds();
  position.result.compile_seconds += session_.compile_seconds();
  position.result.oom_retries = session_.oom_retries();
  const Span span(options_.trace, Trace::kTraining, "checkpoint");
  if (!GatherForSave(reason).ok()) return;  // the next update fails, too
  if (observer_.saves()) observer_.Save(position, reason);
  session_.ReleaseGathered();
  saved_step_ = result_.steps;
  saved_at_ = Clock::now();
  result_.checkpoint_seconds += Since(start);
  if (reason != SaveReason::kEnd)  // the end waits for the disk
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
  if (peers_.Follows(kRequestEndOfTime, TimeLimitReached())) return "max_time";
  if (at_.best.worse_since >= Patience()) return "early_stopping";
  return result_.steps / per_epoch_ >= options_.epochs ? "epochs" : "";
}

absl::Status Loop::ReportAndEvaluate() {
  if (LogIsDue()) RETURN_IF_ERROR(Log());
  if (eval_.dataset == nullptr || !EvaluationDue() || at_.evaluated_step == result_.steps) return absl::OkStatus();
  RETURN_IF_ERROR(Log());
  RETURN_IF_ERROR(EvaluateNow(&result_.eval));
  const bool evaluated = at_.evaluated_step == result_.steps;  // a signal ends an evaluation
  if (!evaluated || !IsBest(result_.eval) || !options_.save_best) return absl::OkStatus();
  if (StopReason().empty()) Save(SaveReason::kBest);  // otherwise the save at the end is the best one
  return absl::OkStatus();
}

// Handles ends that are no errors: a signal ends an update or the wait for a batch, or the data ends before the run.
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
    RETURN_IF_ERROR(CompareWeights());
    RETURN_IF_ERROR(ReportAndEvaluate());
    if (TakeSaveRequest()) Save(SaveReason::kAsked);
    result_.stop_reason = StopReason();
    if (result_.stop_reason.empty() && SaveIsDue()) Save(SaveReason::kInterval);
  }
  return absl::OkStatus();
}

// Returns true if saving is allowed. If the moments are sharded, all peers save or none, so each must know how the
// others ended.
bool Loop::MaySave(const absl::Status& ended) const {
  return ended.ok() || peers_.failed_together() || peers_.alone() || !session_.divides_moments();
}

absl::StatusOr<TrainResult> Loop::Run() {
  if (options_.resume) Resume(*options_.resume);
  phases_.emplace(TimedUpdates(result_.steps), std::vector<std::pair<std::string, std::string>>());
  if (!options_.resume) RETURN_IF_ERROR(EvaluateNow(&result_.eval_before));
  const absl::Status updates = Updates();
  // Saves before the last report and evaluation, which a run that continues this one does not have.
  if (intact_ && MaySave(updates)) Save(SaveReason::kEnd);
  RETURN_IF_ERROR(updates);
  RETURN_IF_ERROR(Log());
  // A signal asks for a quick end, without a final evaluation.
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
  result_.communication = peers_.time();
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

absl::StatusOr<TrainResult> Train(Session& session, const TrainData& train, const TrainData& eval,
                                  const TrainOptions& options, TrainObserver& observer) {
  auto result = Loop(session, train, eval, options, observer).Run();
  if (options.peers != nullptr) options.peers->EndLoop(result.status());
  return result;
}

}  // namespace onnxtrain
