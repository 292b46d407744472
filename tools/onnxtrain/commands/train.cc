// onnxtrain [train]: trains a model into a folder, from its beginning or from a checkpoint.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "frontend/data/source.h"
#include "optim/auto/model_setup.h"
#include "optim/telemetry/summary.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/common.h"
#include "tools/onnxtrain/commands/recorder.h"
#include "tools/onnxtrain/rank_log.h"
#include "tools/onnxtrain/report/order_file.h"
#include "tools/onnxtrain/report/output_folder.h"
#include "tools/onnxtrain/report/start_page.h"
#include "tools/onnxtrain/version.h"

namespace onnxtrain::cli {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<Requirement>> ReadRequirements(const TrainingRun& run) {
  const LossChoice& loss = run.session->loss();
  const std::vector<std::string> metrics = EvalNames(loss, run.config.metrics);
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

// What is known before the model is loaded.
struct Start {
  TrainConfig config;  // with that of the checkpoint, if there is one
  std::optional<ResumePoint> point;
  std::vector<std::string> notes;
  OldRun old_run = OldRun::kRefuse;
};

// The folder of the run that a checkpoint, or a folder of checkpoints, belongs to.
std::string RunFolder(const std::string& path) {
  fs::path folder = fs::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  std::error_code ignored;
  if (fs::exists(folder / "MANIFEST.json", ignored)) folder = folder.parent_path();  // a checkpoint or a link to one
  return folder.filename() == kCheckpointsFolder ? folder.parent_path().string() : folder.string();
}

bool SameFolder(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

// With --resume auto, a run that was killed before its first checkpoint begins again.
absl::Status FindNothing(const TrainConfig& config, const absl::Status& problem, Start* start) {
  std::error_code ignored;
  const bool holds = !ListCheckpoints(StrCat(config.out, "/", kCheckpointsFolder)).empty();
  if (config.resume != "auto" || holds) return problem;
  start->old_run = fs::exists(config.out + "/model.onnx", ignored) ? OldRun::kRefuse : OldRun::kReplace;
  return absl::OkStatus();
}

absl::StatusOr<Start> FindStart(const TrainConfig& config) {
  Start start{.config = config, .old_run = config.overwrite ? OldRun::kReplace : OldRun::kRefuse};
  if (config.resume.empty()) return start;
  const std::string path = config.resume == "auto" ? config.out : config.resume;
  auto point = OpenResumePoint(path);
  if (!point.ok()) {
    RETURN_IF_ERROR(FindNothing(config, Annotate(point.status(), "`resume`: "), &start));
    return start;
  }
  for (const std::string& skipped : point->skipped) start.notes.push_back("skipped: " + skipped);
  auto merged = MergeConfig(config, point->state, &start.notes);
  if (!merged.ok()) return Annotate(merged.status(), StrCat("`resume` ", point->checkpoint.path, ": "));
  start.config = *std::move(merged);
  if (!config.specified.contains("out")) start.config.out = RunFolder(path);
  if (SameFolder(start.config.out, RunFolder(path))) start.old_run = OldRun::kContinue;
  start.point = *std::move(point);
  return start;
}

// Has the run nothing left to do?
bool IsFinished(const Start& start) {
  if (!start.point || !start.point->state.finished || start.old_run != OldRun::kContinue) return false;
  const TrainConfig& then = start.point->state.config;
  std::error_code ignored;
  return then.epochs == start.config.epochs && then.max_steps == start.config.max_steps &&
         then.early_stopping_patience == start.config.early_stopping_patience &&
         fs::exists(start.config.out + "/model.onnx", ignored) &&
         fs::exists(start.config.out + "/summary.json", ignored);
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

// The files that a run must not replace.
std::vector<std::string> InputFiles(const TrainConfig& config) {
  std::vector<std::string> inputs = {config.model, PreprocessPath(config.model)};
  for (const std::string& path : {config.data, config.eval_data}) {
    if (!path.empty()) inputs.push_back(SourcePath(path));
  }
  return inputs;
}

absl::StatusOr<std::unique_ptr<OutputFolder>> OpenFolder(const TrainConfig& config, OldRun old_run) {
  const std::string path = config.out.empty() ? DefaultOutputFolder(config.model) : config.out;
  return OutputFolder::Open(path, old_run, InputFiles(config));
}

TrainConfig ResolveForFile(const TrainingRun& run, const OutputFolder& folder) {
  TrainConfig resolved = ResolveConfig(run);
  resolved.out = folder.path();
  resolved.threads = ComputeThreads(run.config);
  resolved.specified.insert({"out", "threads"});
  return resolved;
}

void Announce(const TrainingRun& run, const TrainConfig& resolved) {
  if (!run.precision.warning.empty()) Warn(run.precision.warning);
  if (run.data.synthetic)
    Warn("NO --data: training on synthetic samples, to show that the model trains; the result is of no other use");
  LogInfo(run.config, StartPage(run, resolved));
  for (const std::string& warning : run.warnings) Warn(warning);
}

absl::Status LogAsRank(const Rank& rank, const OutputFolder& folder) {
  if (rank.alone()) return absl::OkStatus();
  RETURN_IF_ERROR(LogToFile(rank, folder.path()));
  Warn(StrCat("WORLD_SIZE is ", rank.size,
              ", but training is not distributed: this process trains a model of its own, ", folder.path()));
  return absl::OkStatus();
}

// What may change the rounding, but not the run.
void NoteOtherMachine(const TrainConfig& resolved, const RunState& saved, std::vector<std::string>* notes) {
  const auto note = [&](const char* what, const std::string& then, const std::string& now) {
    if (then != now) notes->push_back(StrCat(what, ": ", then, " → ", now, ": equal up to rounding from here on"));
  };
  note("threads", StrCat(saved.config.threads), StrCat(resolved.threads));
  note("processor", saved.cpu, CpuName());
  note("version of onnxtrain", saved.version, kVersion);
}

// Brings the session to where the checkpoint left it.
absl::Status Resume(const TrainConfig& config, const TrainConfig& resolved, const std::string& fingerprint,
                    Start* start, TrainingRun* run) {
  ResumePoint& point = *start->point;
  if (run->train.dataset->streams())
    return Invalid("`resume`: the samples come from a pipe, which cannot go back to where the run was (`init_from` ",
                   "starts from the weights of a checkpoint)");
  RETURN_IF_ERROR(
      Annotate(CheckSameRun(point.state, run->data.model->sha256(), fingerprint, config.resume_force, &start->notes),
               StrCat("`resume` ", point.checkpoint.path, ": ")));
  NoteOtherMachine(resolved, point.state, &start->notes);
  RETURN_IF_ERROR(RestoreSession(point, run->session.get()));
  LogInfo(config, PageRow("resumed",
                          StrCat(point.checkpoint.path, ": ", point.state.position.result.steps, " updates are done")));
  for (const std::string& note : start->notes) Warn("`resume`: " + note);
  return absl::OkStatus();
}

// Has every batch recorded in the file of `dump_order`.
absl::Status DumpOrder(const TrainConfig& config, int64_t done, TrainingRun* run) {
  if (config.dump_order.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(Annotate(CheckNotInput(config.dump_order, InputFiles(config)), "`dump_order` "));
  ASSIGN_OR_RETURN(std::shared_ptr<OrderFile> file, OrderFile::Open(config.dump_order, done));
  run->options.on_batch = [file, data = run->train.dataset](int64_t update, const Batch& batch) {
    return file->Write(update, batch, *data);
  };
  return absl::OkStatus();
}

// The updates to record, where `done` of `total` are done.
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
  RETURN_IF_ERROR(Annotate(CheckNotInput(config.profile, InputFiles(config)), "`profile` "));
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

}  // namespace

absl::StatusOr<int> RunTrain(const TrainConfig& given) {
  ASSIGN_OR_RETURN(const Rank rank, ReadRank());
  TrainConfig config = given;
  config.out = RankFolder(rank, given.out);
  const SignalFlags signals = CatchSignals();
  std::optional<PreparingScope> preparing(std::in_place);
  const int64_t resident_at_start = PeakResidentBytes();
  ASSIGN_OR_RETURN(Start start, FindStart(config));
  if (IsFinished(start)) return ReportFinished(start.config);
  ASSIGN_OR_RETURN(auto model, LoadRunnableModel(start.config));
  ASSIGN_OR_RETURN(const std::unique_ptr<OutputFolder> folder, OpenFolder(start.config, start.old_run));
  RETURN_IF_ERROR(LogAsRank(rank, *folder));
  if (start.config.lr_find) LogInfo(start.config, PageRow("lr", "looking for a rate (`lr_find`) …"));
  ASSIGN_OR_RETURN(TrainingRun run, PrepareTraining(start.config, model, LoadBackend));
  ASSIGN_OR_RETURN(std::vector<Requirement> requirements, ReadRequirements(run));
  RecordedRun recorded{.run = &run,
                       .folder = folder.get(),
                       .resolved = ResolveForFile(run, *folder),
                       .requirements = std::move(requirements),
                       .resident_at_start = resident_at_start,
                       .prints = rank.rank == 0,
                       .data_fingerprint = run.data.synthetic ? "" : DataFingerprint(run.train)};
  preparing.reset();
  Announce(run, recorded.resolved);
  if (start.point) {
    RETURN_IF_ERROR(Resume(config, recorded.resolved, recorded.data_fingerprint, &start, &run));
    recorded.resumed = start.point->state.position;
    recorded.continues_folder = start.old_run == OldRun::kContinue;
  }
  const int64_t done = recorded.resumed ? recorded.resumed->result.steps : 0;
  RETURN_IF_ERROR(DumpOrder(run.config, done, &run));
  ASSIGN_OR_RETURN(recorded.trace, OpenTrace(run, done));
  return Recorder(std::move(recorded)).TrainAndWrite(signals);
}

}  // namespace onnxtrain::cli
