#include "tools/onnxtrain/commands/rank_group.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "frontend/base/cancellation.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "optim/parallel/shard.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/threads.h"
#include "optim/record/checkpoint/checkpoint_writer.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/record/telemetry/console.h"
#include "optim/record/telemetry/resources.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/environment.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

constexpr char kStart[] = "start of the run";

CollectivesOptions MakeOptions(const Rank& rank, const TrainConfig& config) {
  CollectivesOptions options{.rank = rank.rank,
                             .size = rank.size,
                             .file = rank.file,
                             .host = rank.host,
                             .port = rank.port,
                             .interface = config.comm_interface,
                             .timeout = config.comm_timeout};
  const char* given = std::getenv("GLOO_SOCKET_IFNAME");
  if (options.interface.empty() && given != nullptr) options.interface = given;
  if (options.interface.empty() && rank.local_size == rank.size) options.interface = "127.0.0.1";
  return options;
}

std::string FieldText(const TrainConfig& config, const ConfigField& field) {
  std::string text;
  for (const std::string& part : FieldTexts(config, field)) StrAppend(&text, text.empty() ? "" : " ", part);
  return text.empty() ? "nothing" : text;
}

// Fails if a field that affects the result differs from rank 0.
absl::Status CompareWithLeader(const TrainConfig& leader, const TrainConfig& own) {
  for (const ConfigField& field : ConfigFields()) {
    const bool free = field.traits.transient || field.traits.on_resume == OnResume::kFree;
    const std::string theirs = FieldText(leader, field), ours = FieldText(own, field);
    if (free || (field.tasks & kTaskTrain) == 0 || theirs == ours) continue;
    return Invalid("`", field.name, "`: this rank was started with ", ours, ", rank 0 with ", theirs);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> RankGroup::Join(const Rank& rank, const TrainConfig& config) {
  DivideMachine(rank);
  const int64_t resident = PeakResidentBytes();
  ASSIGN_OR_RETURN(auto ranks, CreateCollectives(MakeOptions(rank, config)));
  return std::unique_ptr<RankGroup>(new RankGroup(rank, config.comm_timeout, resident, std::move(ranks)));
}

absl::Status RankGroup::Compare(const TrainConfig& config) {
  double cpus = CpuCount();
  RETURN_IF_ERROR(AllReduce(*ranks_, kStart, std::span(&cpus, 1), Reduction::kMin));
  LimitThreads(static_cast<int>(cpus));
  ASSIGN_OR_RETURN(const std::string text, BroadcastText(*ranks_, "comparison of flags", ToJson(config)));
  const auto leader = FromJson(text);
  const absl::Status same = leader.ok() ? CompareWithLeader(*leader, config) : leader.status();
  return AgreeOnStatus(*ranks_, "comparison of flags", same);
}

// Sends the tensors of rank 0 to all ranks, since different ones would go unnoticed. Before the first update, moments
// have the rule's initial values.
absl::Status RankGroup::ShareState(const SessionCounters& counters, Session* session) {
  if (session->holds_partial_weights()) return absl::OkStatus();  // Distribute does it
  ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, session->State());
  for (const StateTensor& tensor : tensors) {
    if (counters.attempted == 0 && !tensor.of_model && tensor.region.type.rank() > 0) continue;
    ASSIGN_OR_RETURN(HostTensor value, ReadRegion(tensor.region));
    RETURN_IF_ERROR(ranks_->Broadcast("broadcast of the weights", 0, value.mutable_bytes()));
    if (rank_.rank > 0) RETURN_IF_ERROR(WriteRegion(tensor.region, value));
  }
  return rank_.rank == 0 ? absl::OkStatus() : session->RestoreCounters(counters);
}

// Fails if the evaluation data differ between ranks, each of which evaluates some of the batches.
absl::Status RankGroup::CompareEvalData(const TrainingRun& run) {
  const std::string own = run.has_eval() ? DataFingerprint(run.eval) : "";
  ASSIGN_OR_RETURN(const std::string leader, BroadcastText(*ranks_, kStart, own));
  return AgreeOnStatus(*ranks_, kStart,
                       own == leader ? absl::OkStatus()
                                     : Invalid("the samples of the evaluation are others than those of rank 0 "
                                               "(`eval_data`, `data`)"));
}

absl::Status RankGroup::Begin(const absl::Status& ready, const RunState& state, TrainingRun* run) {
  RETURN_IF_ERROR(AgreeOnStatus(*ranks_, kStart, ready));
  RETURN_IF_ERROR(CompareEvalData(*run));
  RETURN_IF_ERROR(AgreeOnStatus(*ranks_, kStart, ShareState(state.session, run->session.get())));
  const TrainConfig& config = state.config;
  data_parallel_ = std::make_unique<DataParallel>(
      ranks_.get(), run->session->ExchangedSums(),
      DataParallelOptions{.send_bf16 = config.comm_dtype == "bf16", .in_order = config.deterministic});
  const ShardLevel shard = FindShardLevel(config.shard);
  const absl::Status divided = run->session->Distribute(data_parallel_.get(), shard);
  if (shard == ShardLevel::kFull || run->session->holds_partial_weights())
    KeepFewFreePages();  // memory matters more than time
  RETURN_IF_ERROR(data_parallel_->failed_together() ? divided : AgreeOnStatus(*ranks_, kStart, divided));
  if (run->session->holds_partial_weights() && rank_.rank > 0)
    RETURN_IF_ERROR(run->session->RestoreCounters(state.session));
  run->options.peers = data_parallel_.get();
  return MeetForCheckpoints(config, run);
}

// Creates the group for checkpoints if all ranks share the folder of rank 0.
absl::Status RankGroup::MeetForCheckpoints(const TrainConfig& config, TrainingRun* run) {
  if (!run->session->divides_moments() || run->data.synthetic) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool shared, IsSharedFolder(*ranks_, config.out));
  if (!shared && rank_.rank == 0)
    Warn(
        StrCat("`out` ", config.out, ": not all ranks see this folder: rank 0 gathers the state for every checkpoint"));
  if (!shared) return absl::OkStatus();
  ASSIGN_OR_RETURN(checkpoints_, SavingGroup::Create(*ranks_));
  return absl::OkStatus();
}

absl::Status RankGroup::Lead(const absl::Status& ready, const RunState* state, TrainingRun* run) {
  RETURN_IF_ERROR(AgreeOnStatus(*ranks_, kStart, ready));
  const std::string text = state != nullptr ? ToJson(*state) : "";
  RETURN_IF_ERROR(BroadcastText(*ranks_, kStart, text).status());
  return state != nullptr ? Begin(absl::OkStatus(), *state, run) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RunState>> RankGroup::AwaitStart() {
  RETURN_IF_ERROR(AgreeOnStatus(*ranks_, kStart, absl::OkStatus()));
  ASSIGN_OR_RETURN(const std::string text, BroadcastText(*ranks_, kStart, ""));
  if (text.empty()) return nullptr;
  ASSIGN_OR_RETURN(RunState state, ParseRunState(text));
  return std::make_unique<RunState>(std::move(state));
}

absl::Status RankGroup::Follow(const absl::Status& ready, const RunState& state, TrainingRun* run) {
  return Begin(ready, state, run);
}

absl::Status RankGroup::AgreeToTrain(const absl::Status& own) { return AgreeOnStatus(*ranks_, kStart, own); }

int RankGroup::ShareExitCode(int own) {
  if (data_parallel_ != nullptr && data_parallel_->ended_with_unshared_error()) return own;
  const auto start = std::chrono::steady_clock::now();
  int32_t code = own;
  const absl::Status shared =
      ranks_->Broadcast("exchange of the exit code", 0, std::as_writable_bytes(std::span(&code, 1)));
  if (shared.ok() || rank_.rank == 0) return code;
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  return waited.count() < timeout_ ? static_cast<int>(kFailed) : own;
}

namespace {

// Returns the decisions of rank 0, with the files and the device of this rank.
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

// Fails if model or data differ from those of rank 0, which may be on another machine.
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
  ASSIGN_OR_RETURN(*run, PrepareTraining(config, model, LoadBackend, {.rank = rank.rank, .ranks = rank.size}));
  return CheckSameInputs(state, *run);
}

// Shows the progress of this rank, and writes its parts of checkpoints whenever rank 0 writes its own (Recorder::Save).
class FollowerObserver : public TrainObserver {
 public:
  // Opens the folder of checkpoints for ranks that write together, after rank 0 has opened it.
  absl::Status Open(const TrainConfig& config, const TrainingRun& run, SavingGroup* group) {
    ASSIGN_OR_RETURN(folder_, CheckpointFolder::OpenExisting(StrCat(config.out, "/", kCheckpointsFolder)));
    session_ = run.session.get();
    const CheckpointOptions options{.compressed = config.checkpoint_compression == "zstd",
                                    .copy_threads = run.backend->ReadsHostMemory() ? run.compute_threads() : 1,
                                    .method = run.save.method,
                                    .on_host = run.backend->ReadsHostMemory(),
                                    .group = group};
    writer_ = std::make_unique<CheckpointWriter>(folder_.get(), options, 0);
    return writer_->Reserve(*session_);
  }
  explicit FollowerObserver(const TrainingRun& run)
      : console_(stderr, {.total_steps = run.options.max_seconds > 0 ? 0 : run.steps.total,
                          .has_accuracy = run.session->loss().classes,
                          .tokens_per_sample = run.train.text_unit.tokens_per_sample}) {}
  void Wait() { writer_->Wait(); }

  void OnEvent(const TrainEvent& event) override { console_.Show(event); }
  bool saves() const override { return writer_ != nullptr; }
  // Ignores errors, which rank 0 reports.
  void Save(const LoopPosition& position, SaveReason reason) override {
    const int64_t step = position.result.steps;
    if (reason == SaveReason::kBest && writer_->last_step() == step) return;
    const bool last = reason == SaveReason::kEnd;
    writer_->Save(*session_, step, "", false, last).IgnoreError();
    if (last) writer_->Finish().IgnoreError();
  }

 private:
  Console console_;
  std::unique_ptr<CheckpointFolder> folder_;
  std::unique_ptr<CheckpointWriter> writer_;  // null: rank 0 writes all
  Session* session_ = nullptr;
};

absl::StatusOr<TrainResult> TrainWith(const RunState& state, const SignalFlags& signals, FollowerObserver* observer,
                                      TrainingRun* run) {
  TrainOptions options = run->options;
  if (observer->saves()) options.peers->SaveParts([observer] { observer->Wait(); });
  options.stop = signals.stop;
  options.save_now = signals.save;
  if (state.position.result.steps > 0) options.resume = state.position;
  return Train(*run->session, run->train, run->eval, options, *observer);
}

void LogMemory(const Session& session, const RankGroup& group) {
  const int64_t measured = PeakResidentBytes() - group.resident_before();
  LogAsRank(group.rank(), StrCat("memory: ", DescribeMemory(session.memory(), measured)), false);
}

void LogFailure(const absl::Status& status, const RankGroup& group) {
  const std::string line = "onnxtrain: " + FieldsToFlags(ToStd(status.message()));
  LogAsRank(group.rank(), line, group.reports() || group.rank().collected);
}

// Returns the exit code for this rank's own result.
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
  FollowerObserver observer(run);
  if (group.checkpoints() != nullptr)
    RETURN_IF_ERROR(group.AgreeToTrain(observer.Open(config, run, group.checkpoints())));
  const auto result = TrainWith(*state, signals, &observer, &run);
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
