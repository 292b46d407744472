#include "optim/record/run_start.h"

#include <filesystem>

#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/version.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

// Returns the folder of the run to which a checkpoint, or a folder of checkpoints, belongs.
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

// Restarts, with --resume auto, a run that was killed before its first checkpoint. Refuses to replace a run that
// finished its model without checkpoints.
absl::Status FindNothing(const TrainConfig& config, const absl::Status& problem, RunStart* start) {
  std::error_code ignored;
  const bool holds = !ListCheckpoints(StrCat(config.out, "/", kCheckpointsFolder)).empty();
  if (config.resume != "auto" || holds) return problem;
  if (!config.overwrite && fs::exists(config.out + "/model.onnx", ignored)) {
    return Invalid("`out` ", config.out, ": holds a trained model (model.onnx), but no checkpoint to go on from; ",
                   "choose another folder, or say `overwrite`");
  }
  start->old_run = OldRun::kReplace;
  return absl::OkStatus();
}

// Adds notes on differences of machine and settings that may change the rounding.
void NoteOtherMachine(const TrainConfig& resolved, const RunState& saved, std::vector<std::string>* notes) {
  const auto note = [&](const char* what, const std::string& then, const std::string& now) {
    if (then != now) notes->push_back(StrCat(what, ": ", then, " → ", now, ": equal up to rounding from here on"));
  };
  note("threads", StrCat(saved.config.threads), StrCat(resolved.threads));
  note("processor", saved.cpu, CpuName());
  note("version of onnxtrain", saved.version, kVersion);
}

}  // namespace

absl::StatusOr<RunStart> FindRunStart(const TrainConfig& config) {
  RunStart start{.config = config, .old_run = config.overwrite ? OldRun::kReplace : OldRun::kRefuse};
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
  start.config.pipeline = config.pipeline, start.config.tensor = config.tensor;  // depend on the ranks of this start
  if (!config.specified.contains("out")) start.config.out = RunFolder(path);
  if (SameFolder(start.config.out, RunFolder(path))) start.old_run = OldRun::kContinue;
  start.point = *std::move(point);
  return start;
}

bool IsFinished(const RunStart& start) {
  if (!start.point || !start.point->state.finished || start.old_run != OldRun::kContinue) return false;
  const TrainConfig& then = start.point->state.config;
  std::error_code ignored;
  return then.epochs == start.config.epochs && then.max_steps == start.config.max_steps &&
         then.early_stopping_patience == start.config.early_stopping_patience &&
         (fs::exists(start.config.out + "/model.onnx", ignored) || !start.config.adapter_out.empty()) &&
         fs::exists(start.config.out + "/summary.json", ignored);
}

absl::Status CheckModelOfCheckpoint(const OnnxModel& model, RunStart* start) {
  if (!start->point) return absl::OkStatus();
  const RunState& saved = start->point->state;
  const bool force = start->config.resume_force;
  absl::Status same = CheckSameModel(saved, model.sha256(), force, &start->notes);
  if (same.ok() && !saved.external_data.empty())
    same = CheckSameExternalData(saved, FindExternalDataDigest(model.path()), force, &start->notes);
  return Annotate(same, StrCat("`resume` ", start->point->checkpoint.path, ": "));
}

absl::StatusOr<std::unique_ptr<OutputFolder>> OpenRunFolder(const RunStart& start) {
  const TrainConfig& config = start.config;
  const std::string path = config.out.empty() ? DefaultOutputFolder(config.model) : config.out;
  return OutputFolder::Open(path, start.old_run, ListInputs(config, path));
}

RecordedRun DescribeRun(OutputFolder& folder, TrainingRun* run) {
  TrainConfig resolved = ResolveConfig(*run);
  resolved.out = folder.path();
  resolved.threads = run->compute_threads();
  resolved.specified.insert({"out", "threads"});
  const bool is_fed = !run->data.has_samples() || run->data.synthetic;
  return {.run = run,
          .folder = &folder,
          .resolved = resolved,
          .data_fingerprint = is_fed ? "" : DataFingerprint(run->train),
          .external_data = FindExternalDataDigest(run->data.model->path())};
}

absl::Status ResumeSession(const TrainConfig& resolved, const std::string& fingerprint, RunStart* start,
                           TrainingRun* run) {
  ResumePoint& point = *start->point;
  if (run->data.has_samples() && run->train.dataset->streams())
    return Invalid("`resume`: the samples come from a pipe, which cannot go back to where the run was (`init_from` ",
                   "starts from the weights of a checkpoint)");
  RETURN_IF_ERROR(Annotate(CheckSameData(point.state, fingerprint, start->config.resume_force, &start->notes),
                           StrCat("`resume` ", point.checkpoint.path, ": ")));
  NoteOtherMachine(resolved, point.state, &start->notes);
  return RestoreSession(point, run->session.get());
}

}  // namespace onnxtrain
