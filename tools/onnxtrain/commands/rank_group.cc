#include "tools/onnxtrain/commands/rank_group.h"

#include <chrono>
#include <cstdlib>

#include "frontend/base/free_pages.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "optim/parallel/shard.h"
#include "optim/record/checkpoint/resume.h"
#include "optim/record/checkpoint/write_together.h"
#include "optim/record/telemetry/resources.h"
#include "tools/onnxtrain/commands/common.h"

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

// Fields that say nothing about the result may differ.
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

// A difference would go unnoticed: every rank starts from the tensors of rank 0. Before the first update moments are
// what the rule begins with.
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

// Every rank evaluates some of the batches.
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
      DataParallelOptions{.rounds = config.comm_dtype == "bf16", .in_order = config.deterministic});
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

// Ranks that cannot write to one folder leave checkpoints to rank 0.
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

}  // namespace onnxtrain::cli
