// onnxtrain [train]: trains a model into a folder, from the beginning or from a checkpoint.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "frontend/base/cancellation.h"
#include "frontend/base/files.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/base/version.h"
#include "optim/parallel/divided_state.h"
#include "optim/parallel/shard.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/threads.h"
#include "optim/record/recorder.h"
#include "optim/record/run_folder.h"
#include "optim/record/run_start.h"
#include "optim/record/telemetry/console.h"
#include "optim/record/telemetry/summary.h"
#include "optim/record/telemetry/trace.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/rank_group.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/report/html_report.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

constexpr size_t kMostOperators = 15, kMostNodes = 10, kMostTypes = 60;

// Returns "12.3", or "-" if the rate is unknown.
std::string Rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? absl::StrFormat("%.1f", amount / seconds / 1e9) : "-";
}

std::string Shortened(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "…";
}

std::string OperatorRows(const std::vector<OperatorCost>& costs, int64_t updates, double total) {
  std::string text =
      absl::StrFormat("  %-28s %6s %10s %10s %9s %9s\n", "operator", "share", "calls", "median ms", "GFLOP/s", "GB/s");
  for (size_t i = 0; i < std::min(costs.size(), kMostOperators); ++i) {
    const OperatorCost& c = costs[i];
    absl::StrAppendFormat(&text, "  %-28s %5.1f%% %10.6g %10.3f %9s %9s\n", c.op, 100 * c.seconds / total,
                          static_cast<double>(c.calls) / static_cast<double>(updates), 1e3 * c.median_seconds,
                          Rate(c.flops, c.seconds), Rate(c.bytes, c.seconds));
  }
  if (costs.size() > kMostOperators) StrAppend(&text, "  … and ", costs.size() - kMostOperators, " more\n");
  return text;
}

std::string NodeRows(const std::vector<NodeCost>& costs, double total) {
  std::string text = absl::StrFormat("  %6s %9s %9s  %s\n", "share", "GFLOP/s", "GB/s", "node");
  for (size_t i = 0; i < std::min(costs.size(), kMostNodes); ++i) {
    const NodeCost& c = costs[i];
    absl::StrAppendFormat(&text, "  %5.1f%% %9s %9s  %s '%s' %s\n", 100 * c.seconds / total, Rate(c.flops, c.seconds),
                          Rate(c.bytes, c.seconds), c.op, c.source, Shortened(c.types, kMostTypes));
  }
  return text;
}

std::string ProfileTables(const Trace& trace) {
  const std::vector<OperatorCost> operators = trace.OperatorCosts();
  const int64_t updates = trace.recorded_updates();
  double total = 0;
  for (const OperatorCost& cost : operators) total += cost.seconds;
  if (operators.empty() || total <= 0) return "profile    no update was recorded";
  std::string text = absl::StrFormat("profile    %.3f ms of operators an update (%d recorded, calls an update)\n",
                                     1e3 * total, updates);
  text += OperatorRows(operators, updates, total) + NodeRows(trace.NodeCosts(), total);
  text.pop_back();
  return text;
}

absl::StatusOr<std::vector<Requirement>> ReadRequirements(const TrainingRun& run) {
  const LossChoice& loss = run.session->loss();
  const std::vector<std::string> metrics = EvalNames(loss, run.session_options.metrics);
  std::vector<Requirement> requirements;
  for (const std::string& text : run.config.require) {
    ASSIGN_OR_RETURN(const Requirement r, ParseRequirement(text));
    const bool listed = std::find(metrics.begin(), metrics.end(), r.metric) != metrics.end();
    const bool of_eval = listed || r.metric == "loss" || r.metric == "accuracy" || r.metric.starts_with("eval");
    if (of_eval && !run.has_eval())
      return Invalid("`require` ", r.metric, ": there is no evaluation data (`eval_data`, `eval_split`)");
    if (!listed && r.metric.ends_with("accuracy") && !loss.classes)
      return Invalid("`require` ", r.metric, ": loss ", loss.name, " has no accuracy");
    requirements.push_back(r);
  }
  return requirements;
}

absl::StatusOr<int> ReportFinished(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const std::string summary, ReadTextFile(config.out + "/summary.json", int64_t{64} << 20));
  std::vector<Requirement> requirements;
  for (const std::string& text : config.require) {
    ASSIGN_OR_RETURN(requirements.emplace_back(), ParseRequirement(text));
  }
  RETURN_IF_ERROR(Print(config.json ? summary : PageRow("finished", config.out + ": nothing is left to do")));
  return ReportUnmet(
      FindUnmetRequirements(requirements, [&](const std::string& name) { return FindSummaryMetric(summary, name); }));
}

void Announce(const TrainingRun& run, const TrainConfig& resolved) {
  if (!run.precision.warning.empty()) Warn(run.precision.warning);
  if (run.data.synthetic)
    Warn("NO --data: training on synthetic samples, to show that the model trains; the result is of no other use");
  LogInfo(run.config, StartPage(run, resolved));
  for (const std::string& warning : run.warnings) Warn(warning);
}

absl::Status Resume(const TrainConfig& config, const RecordedRun& recorded, RunStart* start, TrainingRun* run) {
  RETURN_IF_ERROR(ResumeSession(recorded.resolved, recorded.data_fingerprint, start, run));
  LogInfo(config, PageRow("resumed", StrCat(start->point->checkpoint.path, ": ",
                                            start->point->state.position.result.steps, " updates are done")));
  for (const std::string& note : start->notes) Warn("`resume`: " + note);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<OrderFile>> OpenOrderFile(const TrainConfig& config, int64_t done) {
  if (config.dump_order.empty()) return nullptr;
  RETURN_IF_ERROR(Annotate(CheckNotInput(config.dump_order, ListInputs(config, config.dump_order)), "`dump_order` "));
  return OrderFile::Open(config.dump_order, done);
}

// Returns the updates whose operators are recorded, for a run that starts after `done` of `total`.
absl::StatusOr<StepRange> RecordedSteps(const TrainConfig& config, int64_t done, int64_t total) {
  constexpr int64_t kFirst = 3, kLast = 5;  // the first ones touch memory for the first time
  if (config.profile_steps.empty()) return StepRange{std::min(done + kFirst, total), std::min(done + kLast, total)};
  ASSIGN_OR_RETURN(const StepRange steps, ParseStepRange(config.profile_steps));
  if (steps.first > total)
    return Invalid("`profile_steps` ", config.profile_steps, ": the run has ", total, " updates");
  if (steps.first <= done) return Invalid("`profile_steps` ", config.profile_steps, ": ", done, " updates are done");
  return steps;
}

absl::StatusOr<std::unique_ptr<Trace>> OpenTrace(const TrainingRun& run, int64_t done) {
  const TrainConfig& config = run.config;
  if (config.profile.empty()) return nullptr;
  RETURN_IF_ERROR(Annotate(CheckNotInput(config.profile, ListInputs(config, config.profile)), "`profile` "));
  ASSIGN_OR_RETURN(const StepRange steps, RecordedSteps(config, done, run.steps.total));
  auto trace = std::make_unique<Trace>(
      steps, std::vector<std::pair<std::string, std::string>>{{"version", kVersion},
                                                              {"model", config.model},
                                                              {"backend", run.backend->description()},
                                                              {"precision", run.precision.name},
                                                              {"batch", StrCat(run.batch.global)}});
  RETURN_IF_ERROR(Annotate(WriteTextFile(config.profile, trace->ToJson()), "`profile` "));
  return trace;
}

// Fails if the ranks cannot share the data or the micro-batches of the run.
absl::Status CheckDistributable(const TrainingRun& run, const Rank& rank) {
  if (run.train.dataset->streams()) return Invalid("`data`: several ranks cannot read one pipe");
  const bool divides = !run.config.deterministic || run.batch.accumulation >= rank.size;
  if (!divides)
    return Invalid("`deterministic`: ", rank.size, " ranks share the micro-batches of a batch, which has ",
                   run.batch.accumulation, " (`micro_batch_size`, at most ", run.batch.global / rank.size, ")");
  return absl::OkStatus();
}

// Fails unless there is a rank for every part of the model.
absl::Status CheckParts(const TrainConfig& config, const Rank& rank) {
  for (const auto& [flag, count, parts] :
       {std::tuple("pipeline", config.pipeline, "stages"), {"tensor", config.tensor, "parts"}}) {
    if (count == 1 || count == rank.size) continue;
    return Invalid("`", flag, "` ", count, ": takes as many ranks as ", parts, ", there are ", rank.size,
                   " (groups of them are not supported)");
  }
  return absl::OkStatus();
}

// Fails if a deterministic run gets fewer threads than requested, since sums in kernels depend on their number.
absl::Status CheckThreads(const TrainConfig& config) {
  const int threads = ComputeThreads(config);
  if (!config.deterministic || threads == config.threads) return absl::OkStatus();
  return Invalid("`threads` ", config.threads, ": this process may use ", threads, threads == 1 ? " CPU" : " CPUs",
                 ", and `deterministic` takes no fewer threads than asked for");
}

// A run that is ready for its first update.
struct ReadyRun {
  RunStart start;
  std::unique_ptr<OutputFolder> folder;
  TrainingRun run;
  RecordedRun recorded;
  std::vector<Requirement> requirements;
  bool finished = false;  // no updates are left; the other fields are not set
};

// Returns the level at which the state is sharded over the ranks.
std::string ChooseShard(const ReadyRun& ready, int ranks) {
  const TrainConfig& config = ready.run.config;
  if (config.pipeline > 1 || config.tensor > 1) return "none";
  if (config.shard != "auto") return config.shard;
  return std::string(
      ShardName(ChooseShardLevel({.ranks = ranks,
                                  .whole = ready.run.session->memory(),
                                  .available = static_cast<int64_t>(AvailableMemory()),
                                  .may_divide = CheckDivides(ready.run.optimizer.spec).ok(),
                                  .may_divide_gradients = MayDivideGradients(config, ready.run.backend->device())})));
}

// Fixes decisions by timing and free memory, which ResolveConfig leaves open but which must be equal on all ranks.
TrainConfig DecideForAll(const ReadyRun& ready, int ranks) {
  TrainConfig decided = ready.recorded.resolved;
  if (decided.micro_batch_size == TrainConfig::kAuto) decided.micro_batch_size = ready.run.batch.micro;
  decided.shard = ChooseShard(ready, ranks);
  decided.specified.insert({"micro_batch_size", "shard"});
  return decided;
}

absl::Status Prepare(const TrainConfig& config, const Rank& rank, int64_t resident_at_start, ReadyRun* ready) {
  const PreparingScope preparing;
  ASSIGN_OR_RETURN(ready->start, FindRunStart(config));
  RunStart& start = ready->start;
  ready->finished = IsFinished(start);
  if (ready->finished) return absl::OkStatus();
  RETURN_IF_ERROR(CheckParts(start.config, rank));
  RETURN_IF_ERROR(CheckThreads(start.config));
  ASSIGN_OR_RETURN(auto model, LoadRunnableModel(start.config));
  RETURN_IF_ERROR(CheckModelOfCheckpoint(*model, &start));
  ASSIGN_OR_RETURN(ready->folder, OpenRunFolder(start));
  if (!rank.alone()) RETURN_IF_ERROR(LogToFile(rank, config, ready->folder->path()));
  if (start.config.lr_find) LogInfo(start.config, PageRow("lr", "looking for a rate (`lr_find`) …"));
  ASSIGN_OR_RETURN(ready->run,
                   PrepareTraining(start.config, model, LoadBackend, {.rank = rank.rank, .ranks = rank.size}));
  TrainingRun& run = ready->run;
  if (!rank.alone()) RETURN_IF_ERROR(CheckDistributable(run, rank));
  ASSIGN_OR_RETURN(ready->requirements, ReadRequirements(run));
  ready->recorded = DescribeRun(*ready->folder, &run);
  ready->recorded.settings_from = "onnxtrain train --flagfile config.flags, or --config config.yaml";
  ready->recorded.resident_at_start = resident_at_start;
  return absl::OkStatus();
}

absl::Status Begin(const TrainConfig& config, const SignalFlags& signals, ReadyRun* ready) {
  if (ready->finished) return absl::OkStatus();
  TrainingRun& run = ready->run;
  run.options.stop = signals.stop;
  run.options.save_now = signals.save;
  RecordedRun& recorded = ready->recorded;
  Announce(run, recorded.resolved);
  if (ready->start.point) {
    RETURN_IF_ERROR(Resume(config, recorded, &ready->start, &run));
    recorded.resumed = ready->start.point->state.position;
    recorded.continues_folder = ready->start.continues_folder();
  }
  const int64_t done = recorded.resumed ? recorded.resumed->result.steps : 0;
  ASSIGN_OR_RETURN(recorded.order, OpenOrderFile(run.config, done));
  ASSIGN_OR_RETURN(recorded.trace, OpenTrace(run, done));
  return absl::OkStatus();
}

// Starts the other ranks with the prepared run of rank 0.
absl::Status BeginTogether(const absl::Status& own, RankGroup& group, ReadyRun* ready) {
  if (!own.ok() || ready->finished) return group.Lead(own, nullptr, nullptr);
  const RecordedRun& recorded = ready->recorded;
  const RunState state{.version = kVersion,
                       .cpu = CpuName(),
                       .position = recorded.resumed.value_or(LoopPosition()),
                       .session = ready->run.session->counters(),
                       .config = DecideForAll(*ready, group.rank().size),
                       .model_sha256 = ready->run.data.model->sha256(),
                       .data_fingerprint = recorded.data_fingerprint};
  return group.Lead(own, &state, &ready->run);
}

// Prints progress and messages to stderr.
class Terminal : public RunDisplay {
 public:
  explicit Terminal(const TrainingRun& run)
      : config_(run.config),
        console_(stderr, {.total_steps = run.options.max_seconds > 0 ? 0 : run.steps.total,
                          .has_accuracy = run.session->loss().classes,
                          .tokens_per_sample = run.train.text_unit.tokens_per_sample,
                          .sparse = !run.config.verbose && !IsSpecified(run.config, "log_every")}) {}
  void ShowProgress(const TrainEvent& event) override {
    if (!config_.quiet) console_.Show(event);
  }
  void EndProgress() override { console_.Finish(); }
  void ShowWarning(const std::string& text) override {
    console_.Finish();
    Warn(text);
  }
  void ShowInfo(const std::string& text) override { LogInfo(config_, text); }
  void ShowProfile(const Trace& trace) override { LogInfo(config_, ProfileTables(trace)); }

 private:
  const TrainConfig& config_;
  Console console_;
};

// Writes the report and prints the result. Returns the exit code.
absl::StatusOr<int> ReportOutcome(const ReadyRun& ready, RunOutcome outcome) {
  if (outcome.summary_written) {
    const absl::Status reported = WriteReport(ready.run, outcome, *ready.folder);
    if (reported.ok()) outcome.files.emplace_back(kReportFile);
    if (!reported.ok()) Warn(StrCat("there is no report: ", ToStd(reported.message())));
  }
  if (!outcome.status.ok()) {
    const int failed = ReportFailure(outcome.status);
    return outcome.bad_input ? static_cast<int>(kBadInput) : failed;
  }
  RETURN_IF_ERROR(
      Print(ready.run.config.json ? outcome.json : EndPage(outcome.summary, ready.folder->path(), outcome.files)));
  if (outcome.summary.result.stop_reason == "signal") return kStopped;
  return ReportUnmet(FindUnmetRequirements(
      ready.requirements, [&](const std::string& name) { return FindSummaryMetric(outcome.json, name); }));
}

absl::StatusOr<int> TrainAlone(const TrainConfig& config, const Rank& rank, const SignalFlags& signals) {
  ReadyRun ready;
  RETURN_IF_ERROR(Prepare(config, rank, PeakResidentBytes(), &ready));
  RETURN_IF_ERROR(Begin(config, signals, &ready));
  if (ready.finished) return ReportFinished(ready.start.config);
  Terminal terminal(ready.run);
  ready.recorded.display = &terminal;
  Recorder recorder(std::move(ready.recorded));
  RETURN_IF_ERROR(recorder.Begin());
  return ReportOutcome(ready, recorder.TrainAndWrite());
}

// Trains as rank 0. The other ranks receive every error before the first update, and afterwards the exit code.
absl::StatusOr<int> TrainTogether(const TrainConfig& config, RankGroup& group, const SignalFlags& signals) {
  RETURN_IF_ERROR(group.Compare(config));
  ReadyRun ready;
  absl::Status began = Prepare(config, group.rank(), group.resident_before(), &ready);
  if (began.ok()) began = Begin(config, signals, &ready);
  RETURN_IF_ERROR(BeginTogether(began, group, &ready));
  absl::StatusOr<int> code = kDone;
  if (ready.finished) {
    code = ReportFinished(ready.start.config);
  } else {
    ready.recorded.group = group.checkpoints();
    Terminal terminal(ready.run);
    ready.recorded.display = &terminal;
    Recorder recorder(std::move(ready.recorded));
    RETURN_IF_ERROR(group.AgreeToTrain(recorder.Begin()));
    if (group.checkpoints() != nullptr) RETURN_IF_ERROR(group.AgreeToTrain(absl::OkStatus()));
    code = ReportOutcome(ready, recorder.TrainAndWrite());
  }
  group.ShareExitCode(code.ok() ? *code : ExitCodeOf(code.status()));
  return code;
}

}  // namespace

absl::StatusOr<int> RunTrain(const TrainConfig& config) {
  ASSIGN_OR_RETURN(const Rank rank, ReadRank());
  const SignalFlags signals = CatchSignals();
  if (rank.alone()) {
    RETURN_IF_ERROR(
        RefuseUnused(config, {.is_launched = false, .has_ranks = false, .has_shards = config.shard == "auto"}));
    return TrainAlone(config, rank, signals);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<RankGroup> group, RankGroup::Join(rank, config));
  if (rank.rank > 0) return TrainAsFollower(config, *group, signals);
  const auto code = TrainTogether(config, *group, signals);
  return absl::IsUnavailable(code.status()) ? ReportFailure(code.status()) : code;
}

}  // namespace onnxtrain::cli
