#include "tools/onnxtrain/commands/train_as_rank.h"

#include <cstdio>
#include <filesystem>

#include "frontend/base/cancellation.h"
#include "frontend/base/status.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/threads.h"
#include "optim/record/checkpoint/checkpoint_writer.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/record/telemetry/console.h"
#include "optim/record/telemetry/resources.h"
#include "tools/onnxtrain/commands/common.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/ranks.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

// The decisions of rank 0, on the files and the device of this rank.
TrainConfig MakeConfig(const TrainConfig& given, const TrainConfig& decided, const Rank& rank) {
  TrainConfig config = decided;
  for (std::string TrainConfig::*path : {&TrainConfig::model, &TrainConfig::data, &TrainConfig::eval_data}) {
    if (!(given.*path).empty()) config.*path = given.*path;
  }
  config.verify_passes = given.verify_passes;
  config.comm_timeout = given.comm_timeout;
  if (config.device.starts_with("cuda")) config.device = StrCat("cuda:", rank.local_rank);
  return config;
}

absl::Status LogInto(const std::string& folder, const TrainConfig& given, const Rank& rank) {
  std::error_code ignored;  // on another machine it may be missing; opening the log says what is wrong with it
  std::filesystem::create_directories(folder, ignored);
  return LogToFile(rank, given, folder);
}

// Model and data may be files of another machine.
absl::Status CheckSameInputs(const RunState& state, const TrainingRun& run) {
  if (run.data.model->sha256() != state.model_sha256)
    return Invalid("`model` ", run.config.model, ": is not the model that rank 0 trains");
  if (!run.data.synthetic && DataFingerprint(run.train) != state.data_fingerprint)
    return Invalid("`data` ", run.config.data, ": holds other samples than that of rank 0");
  return absl::OkStatus();
}

absl::Status Prepare(const TrainConfig& config, const RunState& state, const Rank& rank, TrainingRun* run) {
  const PreparingScope preparing;
  ASSIGN_OR_RETURN(const auto model, LoadRunnableModel(config));
  ASSIGN_OR_RETURN(*run, PrepareTraining(config, model, LoadBackend, {rank.rank, rank.size}));
  return CheckSameInputs(state, *run);
}

// Writes this rank's parts of checkpoints, whenever rank 0 writes its own (Recorder::Save).
class PartSaver {
 public:
  // Of ranks that write together (RankGroup::checkpoints), once rank 0 has opened the folder of its run.
  absl::Status Open(const TrainConfig& config, const TrainingRun& run, SavingGroup* group) {
    ASSIGN_OR_RETURN(folder_, CheckpointFolder::OpenExisting(StrCat(config.out, "/", kCheckpointsFolder)));
    session_ = run.session.get();
    const CheckpointOptions options{.compressed = config.checkpoint_compression == "zstd",
                                    .copy_threads = run.backend->ReadsHostMemory() ? ComputeThreads(config) : 1,
                                    .method = run.save.method,
                                    .on_host = run.backend->ReadsHostMemory(),
                                    .group = group};
    writer_ = std::make_unique<CheckpointWriter>(folder_.get(), options, 0);
    return writer_->Reserve(*session_);
  }
  void Attach(TrainOptions* options) {
    if (writer_ == nullptr) return;
    options->save = [this](const LoopPosition& position, SaveReason reason) { Save(position.result.steps, reason); };
    options->peers->SaveParts([this] { writer_->Wait(); });
  }

 private:
  // Rank 0 tells of failures.
  void Save(int64_t step, SaveReason reason) {
    if (reason == SaveReason::kBest && writer_->last_step() == step) return;
    const bool last = reason == SaveReason::kEnd;
    writer_->Save(*session_, step, "", false, last).IgnoreError();
    if (last) writer_->Finish().IgnoreError();
  }

  std::unique_ptr<CheckpointFolder> folder_;
  std::unique_ptr<CheckpointWriter> writer_;  // null: rank 0 writes all
  Session* session_ = nullptr;
};

absl::StatusOr<TrainResult> TrainWith(const RunState& state, const SignalFlags& signals, PartSaver* saver,
                                      TrainingRun* run) {
  TrainOptions options = run->options;
  saver->Attach(&options);
  options.stop = signals.stop;
  options.save_now = signals.save;
  if (state.position.result.steps > 0) options.resume = state.position;
  Console console(stderr, {.total_steps = options.max_seconds > 0 ? 0 : run->steps.total,
                           .has_accuracy = run->session->loss().classes,
                           .tokens_per_sample = run->train.text_unit.tokens_per_sample});
  return Train(*run->session, run->train, run->eval, options, [&](const TrainEvent& event) { console.Show(event); });
}

void LogMemory(const Session& session, const RankGroup& group) {
  const int64_t measured = PeakResidentBytes() - group.resident_before();
  LogAsRank(group.rank(), StrCat("memory: ", DescribeMemory(session.planned_peak_bytes(), measured)), false);
}

void LogFailure(const absl::Status& status, const RankGroup& group) {
  const std::string line = "onnxtrain: " + FieldsToFlags(ToStd(status.message()));
  LogAsRank(group.rank(), line, group.reports() || group.rank().collected);
}

// How this rank would end by itself.
int OwnExitCode(const absl::StatusOr<TrainResult>& result) {
  if (!result.ok()) return absl::IsInvalidArgument(result.status()) ? kBadInput : kFailed;
  return result->stop_reason == "signal" ? kStopped : result->stop_reason == "not_finite" ? kFailed : kDone;
}

absl::StatusOr<int> Follow(const TrainConfig& given, RankGroup& group, const SignalFlags& signals) {
  RETURN_IF_ERROR(group.Compare(given));
  ASSIGN_OR_RETURN(const std::unique_ptr<RunState> state, group.AwaitStart());
  if (state == nullptr) return group.ShareExitCode(kDone);
  const TrainConfig config = MakeConfig(given, state->config, group.rank());
  TrainingRun run;
  absl::Status ready = LogInto(config.out, given, group.rank());
  if (ready.ok()) ready = Prepare(config, *state, group.rank(), &run);
  RETURN_IF_ERROR(group.Follow(ready, *state, &run));
  RETURN_IF_ERROR(group.AgreeToTrain(absl::OkStatus()));
  PartSaver saver;
  if (group.checkpoints() != nullptr) RETURN_IF_ERROR(group.AgreeToTrain(saver.Open(config, run, group.checkpoints())));
  const auto result = TrainWith(*state, signals, &saver, &run);
  result.ok() ? LogMemory(*run.session, group) : LogFailure(result.status(), group);
  return group.ShareExitCode(OwnExitCode(result));
}

}  // namespace

int TrainAsFollower(const TrainConfig& given, RankGroup& group, const SignalFlags& signals) {
  const auto code = Follow(given, group, signals);
  if (code.ok()) return *code;
  LogFailure(code.status(), group);
  return absl::IsUnavailable(code.status()) ? static_cast<int>(kFailed) : ExitCodeOf(code.status());
}

}  // namespace onnxtrain::cli
