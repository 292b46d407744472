#include "optim/record/caller_run.h"

#include <limits>
#include <utility>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"

namespace onnxtrain {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Returns true if an action that repeats every `every` updates or `every_seconds` is due.
bool IsDue(int64_t every, double every_seconds, int64_t steps, Clock::time_point last) {
  return every_seconds > 0 ? Since(last) >= every_seconds : every > 0 && steps % every == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CallerRun>> CallerRun::Begin(RunStart start, std::unique_ptr<OutputFolder> folder,
                                                            TrainingRun* run) {
  std::unique_ptr<CallerRun> recorded(new CallerRun(std::move(folder), run));
  RETURN_IF_ERROR(recorded->Open(std::move(start)));
  return recorded;
}

absl::Status CallerRun::Open(RunStart start) {
  RecordedRun recorded = DescribeRun(*folder_, &run_);
  recorded.settings_from = "The settings of a program that trains on batches of its own.";
  recorded.display = &display_;
  recorded.resident_at_start = PeakResidentBytes();
  if (start.point.has_value()) {
    RETURN_IF_ERROR(ResumeSession(recorded.resolved, "", &start, &run_));
    for (const std::string& note : start.notes) display_.ShowWarning("`resume`: " + note);
    recorded.resumed = at_ = start.point->state.position;
    recorded.continues_folder = start.continues_folder();
    seconds_before_ = at_.result.seconds;
    saved_step_ = at_.result.steps;
  }
  recorder_ = std::make_unique<Recorder>(std::move(recorded));
  return recorder_->Begin();
}

double CallerRun::Seconds() const { return seconds_before_ + Since(start_); }

absl::Status CallerRun::CheckOpen() const {
  return finished_ ? Invalid("the run in ", folder_->path(), " is finished") : absl::OkStatus();
}

absl::Status CallerRun::EndUpdate(int64_t samples) {
  const TrainOptions& options = run_.options;
  TrainResult& result = at_.result;
  ++result.steps;
  result.samples += samples;
  result.compute_seconds += Since(began_);
  RETURN_IF_ERROR(FindOutliers());
  if (IsDue(options.log_every, options.log_seconds, result.steps, logged_at_)) RETURN_IF_ERROR(Log());
  if (IsDue(options.save_every, options.save_seconds, result.steps, saved_at_)) Save(SaveReason::kInterval);
  return absl::OkStatus();
}

absl::Status CallerRun::FindOutliers() {
  ASSIGN_OR_RETURN(const std::optional<UpdateValues> last, run_.session->LastUpdate());
  if (!last.has_value()) return absl::OkStatus();
  const auto add = [&](Outlier::Of of, OutlierWindow* window, double value) {
    if (const auto median = window->Add(value)) at_.outliers.push_back({of, at_.result.steps, value, *median});
  };
  add(Outlier::Of::kLoss, &at_.losses, last->loss);
  add(Outlier::Of::kGradNorm, &at_.grad_norms, last->grad_norm);
  return absl::OkStatus();
}

void CallerRun::Add(const StepReport& report) {
  if (report.updates == 0) return;
  const double weight = report_.weight + report.weight;
  const double loss = report_.loss * report_.weight + report.loss * report.weight;
  report_ = {.updates = report_.updates + report.updates,
             .skipped = report_.skipped + report.skipped,
             .loss = weight > 0 ? loss / weight : report.loss,
             .grad_norm = report.grad_norm,
             .learning_rate = report.learning_rate,
             .weight = weight,
             .correct = report_.correct + report.correct,
             .targets = report_.targets + report.targets,
             .loss_scale = report.loss_scale};
}

absl::Status CallerRun::Log() {
  TrainResult& result = at_.result;
  if (at_.logged_step == result.steps) return absl::OkStatus();
  ASSIGN_OR_RETURN(const StepReport last, run_.session->Report());
  Add(last);
  result.skipped_steps += report_.skipped;
  result.final_loss = report_.weight > 0 ? report_.loss : std::numeric_limits<double>::quiet_NaN();
  TrainEvent event{.step = result.steps,
                   .seconds = Seconds(),
                   .report = std::exchange(report_, {}),
                   .resources = resources_.Take(),
                   .outliers = std::exchange(at_.outliers, {})};
  const double seconds = result.compute_seconds - at_.logged_seconds;
  if (seconds > 0) event.samples_per_second = static_cast<double>(result.samples - at_.logged_samples) / seconds;
  at_.logged_step = result.steps;
  at_.logged_samples = result.samples;
  at_.logged_seconds = result.compute_seconds;
  logged_at_ = Clock::now();
  recorder_->OnEvent(event);
  return absl::OkStatus();
}

void CallerRun::RecordEvaluation(const EvalMetrics& metrics) {
  at_.result.eval = metrics;
  if (at_.result.steps == 0) at_.result.eval_before = metrics;
  at_.evaluated_step = at_.result.steps;
  recorder_->OnEvent(
      {.kind = TrainEvent::Kind::kEval, .step = at_.result.steps, .seconds = Seconds(), .eval = metrics});
}

void CallerRun::Save(SaveReason reason) {
  if (saved_step_ == at_.result.steps && reason == SaveReason::kInterval) return;
  at_.result.seconds = Seconds();
  LoopPosition position = at_;
  position.result.compile_seconds += run_.session->compile_seconds();
  position.result.oom_retries = run_.session->oom_retries();
  recorder_->Save(position, reason);
  saved_step_ = at_.result.steps;
  saved_at_ = Clock::now();
}

absl::StatusOr<std::string> CallerRun::Finish() {
  RETURN_IF_ERROR(CheckOpen());
  RETURN_IF_ERROR(Log());
  const int64_t most = run_.config.max_steps;
  at_.result.stop_reason = most > 0 && steps() >= most ? "max_steps" : "end_of_data";
  if (steps() > 0) Save(SaveReason::kEnd);
  TrainResult result = at_.result;
  result.compile_seconds += run_.session->compile_seconds();
  result.oom_retries = run_.session->oom_retries();
  finished_ = true;
  RunOutcome outcome = recorder_->Finish(result);
  RETURN_IF_ERROR(outcome.status);
  return std::move(outcome.json);
}

}  // namespace onnxtrain
