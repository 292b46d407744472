#include "optim/plan/open_session.h"

#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "optim/plan/session_setup.h"
#include "optim/step/rules/rule.h"

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

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> OpenSession(const SessionOptions& options, TrainingRun* run) {
  ASSIGN_OR_RETURN(auto session, Session::Create(run->data.models, run->backend.get(), options));
  RETURN_IF_ERROR(FollowSession(*session, run, options));
  RETURN_IF_ERROR(BeginInScaledUnit(*run, session.get()));
  return session;
}

namespace {

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

}  // namespace

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

namespace {

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

}  // namespace

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

}  // namespace onnxtrain
