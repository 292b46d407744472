// onnxtrain plan: prints the planned memory of a training step, without allocating or running it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "frontend/base/files.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "optim/memory/policy.h"
#include "optim/parallel/divided_state.h"
#include "optim/parallel/pipeline/pipeline_session.h"
#include "optim/parallel/shard.h"
#include "optim/parallel/tensor/tensor_session.h"
#include "optim/parallel/traffic.h"
#include "optim/plan/micro_batch.h"
#include "optim/plan/model_setup.h"
#include "optim/plan/run_memory.h"
#include "optim/plan/session_setup.h"
#include "optim/plan/training_run.h"
#include "optim/step/program/programs.h"
#include "optim/step/session.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/ladder.h"
#include "tools/onnxtrain/flags/flags.h"
#include "tools/onnxtrain/report/memory_timeline.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Page(const TrainingRun& setup, const std::vector<StagePlan>& stages, double bubble) {
  std::string text = PageRow("model", DescribeModel(*setup.data.models->model())) +
                     PageRow("backend", DescribeBackend(*setup.backend));
  text += PageRow("batch", StrCat(setup.batch.global, " = ", setup.batch.micro, " per micro-batch × ",
                                  setup.batch.accumulation, " accumulated"));
  text += PageRow("pipeline", absl::StrFormat("%d stages, each waits %.1f%% of an update where all take equal times",
                                              stages.size(), 100 * bubble));
  absl::StrAppendFormat(&text, "  %5s %6s", "stage", "time");
  for (const MemoryColumn& column : kMemoryColumns) absl::StrAppendFormat(&text, " %11s", column.key);
  absl::StrAppendFormat(&text, " %11s %11s\n", "peak", "sent");
  for (size_t s = 0; s < stages.size(); ++s) {
    absl::StrAppendFormat(&text, "  %5d %5.1f%%", s, 100 * stages[s].time_share);
    for (const MemoryColumn& column : kMemoryColumns)
      absl::StrAppendFormat(&text, " %11s", Bytes(stages[s].memory.*column.bytes));
    absl::StrAppendFormat(&text, " %11s %11s\n", Bytes(stages[s].memory.total()), Bytes(stages[s].sent_bytes));
  }
  return text;
}

Json ToJson(const TrainConfig& config, const TrainingRun& setup, const std::vector<StagePlan>& stages, double bubble) {
  Json json = {{"model", config.model},
               {"backend", setup.backend->name()},
               {"batch", setup.batch.global},
               {"micro_batch", setup.batch.micro},
               {"accumulation", setup.batch.accumulation},
               {"bubble_share", bubble},
               {"stages", Json::array()}};
  for (const StagePlan& plan : stages) {
    Json stage = {{"time_share", plan.time_share}, {"memory", Json::object()}};
    for (const MemoryColumn& column : kMemoryColumns) stage["memory"][column.key] = plan.memory.*column.bytes;
    stage["peak_bytes"] = plan.memory.total();
    stage["wire_bytes"] = plan.sent_bytes;
    json["stages"].push_back(std::move(stage));
  }
  return json;
}

// Returns the page, or JSON with --json, of the part of the model that each rank has under --pipeline.
absl::StatusOr<std::string> DescribePipeline(const TrainConfig& config, const TrainingRun& setup) {
  SessionOptions options = setup.session_options;
  options.pipeline.count = static_cast<int>(config.pipeline);
  ASSIGN_OR_RETURN(const std::vector<StagePlan> stages,
                   PlanStages(setup.data.models, *setup.backend, std::move(options), setup.batch.global));
  const double bubble = BubbleShare(static_cast<int>(config.pipeline), setup.batch.accumulation);
  return config.json ? WriteJson(ToJson(config, setup, stages, bubble), 2) + "\n" : Page(setup, stages, bubble);
}

std::string Page(const TrainConfig& config, const TrainingRun& setup, const PartPlan& plan) {
  std::string text = PageRow("model", DescribeModel(*setup.data.models->model())) +
                     PageRow("backend", DescribeBackend(*setup.backend));
  text += PageRow("batch", StrCat(setup.batch.global, " = ", setup.batch.micro, " per micro-batch × ",
                                  setup.batch.accumulation, " accumulated"));
  text +=
      PageRow("tensor", absl::StrFormat("%d ranks divide %d of %d trained weights, %.1f%% of their elements",
                                        config.tensor, plan.divided_weights, plan.trained_weights,
                                        100.0 * plan.divided_elements / std::max<int64_t>(1, plan.trained_elements)));
  text += PageRow("sends",
                  StrCat(Bytes(plan.sent_bytes), " per rank and update, in ", plan.exchanges, " sums over the ranks"));
  std::string parts;
  for (const MemoryColumn& row : kMemoryColumns)
    StrAppend(&parts, parts.empty() ? "" : ", ", row.key, " ", Bytes(plan.memory.*row.bytes));
  return text + PageRow("memory", parts) + PageRow("peak", StrCat(Bytes(plan.memory.total()), " per rank"));
}

Json ToJson(const TrainConfig& config, const TrainingRun& setup, const PartPlan& plan) {
  Json json = {{"model", config.model},
               {"backend", setup.backend->name()},
               {"batch", setup.batch.global},
               {"micro_batch", setup.batch.micro},
               {"accumulation", setup.batch.accumulation},
               {"tensor", config.tensor},
               {"trained_weights", plan.trained_weights},
               {"divided_weights", plan.divided_weights},
               {"trained_elements", plan.trained_elements},
               {"divided_elements", plan.divided_elements},
               {"exchanges", plan.exchanges},
               {"wire_bytes", plan.sent_bytes},
               {"memory", Json::object()}};
  for (const MemoryColumn& row : kMemoryColumns) json["memory"][row.key] = plan.memory.*row.bytes;
  json["peak_bytes"] = plan.memory.total();
  return json;
}

// Returns the page or JSON of the part of each weight that a rank has under --tensor.
absl::StatusOr<std::string> DescribeTensor(const TrainConfig& config, const TrainingRun& setup) {
  SessionOptions options = setup.session_options;
  options.tensor.count = static_cast<int>(config.tensor);
  ASSIGN_OR_RETURN(const PartPlan plan,
                   PlanPart(setup.data.models, *setup.backend, std::move(options), setup.batch.global));
  return config.json ? WriteJson(ToJson(config, setup, plan), 2) + "\n" : Page(config, setup, plan);
}

struct Budget {
  int64_t total = 0;   // bytes of the whole process
  int64_t budget = 0;  // the least `memory_budget` that this plan fits, in whole MiB
  int64_t activations = 0;
  int64_t repeated = 0;
  double time = 1;  // relative to keeping everything
};

struct StepMemory {
  SessionMemory memory;
  MemoryUse arena;        // arena of the largest program
  int64_t workspace = 0;  // bytes of the largest workspace
  int64_t repeated = 0;
  double extra_share = 0;       // share of the time for recomputation
  int64_t largest_micro = 0;    // 0: not even one sample fits
  std::vector<Budget> budgets;  // from the most to the least memory
  int64_t least_budget = 0;     // with which the run fits in micro-batches of this size; 0: unknown
  int64_t least_of_one = 0;     // the same in micro-batches of one sample
  int64_t sent_in_program = 0;  // bytes that a rank sends within the program of a micro-batch
  int64_t divided_weights = 0;  // bytes of the weights that the program gathers
};

const ProgramProfile& Largest(const std::vector<ProgramProfile>& profiles) {
  return *std::max_element(profiles.begin(), profiles.end(), [](const auto& a, const auto& b) {
    return a.program->memory().arena < b.program->memory().arena;
  });
}

absl::StatusOr<std::unique_ptr<Session>> PlannedSession(const TrainingRun& trial, const RecomputeSpec& recompute) {
  SessionOptions options = trial.session_options;
  options.recompute = recompute;
  return PlanSession({trial.data.models, *trial.backend}, std::move(options), trial.batch.global);
}

// Returns the memory budget that `bytes` need, in whole MiB.
int64_t BudgetFor(int64_t bytes) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  int64_t budget = (bytes + kMebibyte - 1) / kMebibyte * kMebibyte;
  while (PlannableBytes(budget) < bytes) budget += kMebibyte;
  return budget;
}

// `kept`: memory of the session without recomputation.
std::vector<Budget> MakeBudgets(const std::vector<RecomputePlan>& plans, const SessionMemory& kept) {
  constexpr size_t kMost = 12;
  std::vector<Budget> budgets;
  const double none = plans.front().seconds;
  const size_t stride = (plans.size() + kMost - 1) / kMost;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (i % stride != 0 && i + 1 != plans.size()) continue;
    const auto arena = static_cast<int64_t>(plans[i].arena);
    const int64_t total = kept.total() - kept.activations + std::max(arena, kept.compiling);
    const Budget next{total, BudgetFor(total), arena, plans[i].repeated, none > 0 ? plans[i].seconds / none : 1};
    // Keeps the fastest plan of each budget.
    if (budgets.empty() || next.budget < budgets.back().budget) budgets.push_back(next);
  }
  return budgets;
}

// Plots the session's plan, which is among those of the planner, since planning is deterministic.
absl::Status Draw(const TrainConfig& config, const RecomputePlanner& planner,
                  const std::vector<RecomputePlan>& frontier, const StepMemory& step, const TrainingRun& trial) {
  const RecomputePlan* taken = &frontier.front();
  std::vector<RecomputePlan> fixed;
  for (RecomputeMode mode : {RecomputeMode::kSqrt, RecomputeMode::kAll}) {
    if (trial.session_options.recompute.mode == mode) taken = &fixed.emplace_back(planner.Plan(mode));
  }
  for (const RecomputePlan& plan : frontier) {
    if (fixed.empty() && plan.arena == step.arena.arena) taken = &plan;
  }
  const std::string title =
      StrCat(config.model, ", ", trial.batch.micro, " samples, ", taken->repeated, " nodes recomputed");
  return WriteTextFile(config.plot, MemoryPlot(title, planner.Model(), taken->recomputed, taken->arena));
}

// Returns the level at which the state is sharded over the ranks, as train chooses it.
absl::StatusOr<ShardLevel> ChooseShard(const TrainConfig& config, const TrainingRun& trial) {
  if (config.shard != "auto") return FindShardLevel(config.shard);
  ASSIGN_OR_RETURN(const auto whole, PlannedSession(trial, trial.session_options.recompute));
  return ChooseShardLevel({.ranks = trial.session_options.plan_ranks,
                           .whole = whole->memory(),
                           .available = static_cast<int64_t>(AvailableMemory()),
                           .may_divide = CheckDivides(trial.session_options.optimizer).ok(),
                           .may_divide_gradients = MayDivideGradients(config, trial.backend->device())});
}

absl::Status PlanRanks(const TrainConfig& config, TrainingRun* trial) {
  trial->session_options.plan_ranks = static_cast<int>(config.world);
  ASSIGN_OR_RETURN(trial->session_options.plan_shard, ChooseShard(config, *trial));
  return absl::OkStatus();
}

// Plans saves of the part of the state that one rank writes.
SavePlan PlanSaves(const TrainConfig& config, const TrainingRun& trial, int64_t room) {
  const bool divided = trial.session_options.plan_shard != ShardLevel::kNone;
  return PlanSave(config,
                  {.state_bytes = divided ? trial.state_bytes / config.world : trial.state_bytes,
                   .on_host = trial.backend->ReadsHostMemory()},
                  room);
}

// Includes the memory of saves in the plan, as a run on data does (FitMemoryBudget).
absl::Status PlanWithinBudget(const TrainConfig& config, TrainingRun* trial) {
  const int64_t others = trial->session_options.caller_bytes;
  const auto count = [&](int64_t room) {
    trial->save = PlanSaves(config, *trial, room);
    trial->session_options.caller_bytes = others + trial->save.bytes;
  };
  count(config.memory_budget > 0 || config.ladder ? 0 : RoomForCopy());
  if (config.memory_budget == 0 || config.world > 1 || config.pipeline > 1 || config.tensor > 1)
    return absl::OkStatus();
  RETURN_IF_ERROR(TakeFittingRung(trial->batch.global, &trial->session_options, trial));
  ASSIGN_OR_RETURN(const int64_t room,
                   FindRoom({trial->data.models, *trial->backend}, trial->session_options, trial->batch.global));
  count(room + trial->save.bytes);
  return absl::OkStatus();
}

// Plans a run on data as its training does.
absl::StatusOr<TrainingRun> PrepareOnData(const TrainConfig& config) {
  ASSIGN_OR_RETURN(auto model, LoadRunnableModel(config));
  ASSIGN_OR_RETURN(TrainingRun run, PrepareTraining(config, model, LoadBackend, {.plans = true}));
  run.batch.global = std::min(run.batch.global, run.train.dataset->size());
  return run;
}

// Plans a run on synthetic samples, with one batch in memory, and with saves as for a run on data.
absl::StatusOr<TrainingRun> PrepareWithoutData(const TrainConfig& config) {
  ASSIGN_OR_RETURN(auto model, LoadRunnableModel(config));
  ASSIGN_OR_RETURN(TrainingRun run,
                   PrepareTraining(config, model, LoadBackend, {.samples = {.one_batch = true}, .plans = true}));
  if (config.world > 1) RETURN_IF_ERROR(PlanRanks(config, &run));
  RETURN_IF_ERROR(PlanWithinBudget(config, &run));
  return run;
}

absl::StatusOr<TrainingRun> Prepare(const TrainConfig& config) {
  return config.data.empty() ? PrepareWithoutData(config) : PrepareOnData(config);
}

// Returns the bytes that each rank sends in an update.
int64_t WireBytes(const TrainConfig& config, const TrainingRun& trial, const StepMemory& step) {
  const SessionOptions& options = trial.session_options;
  const bool divided = options.plan_shard >= ShardLevel::kGradients;
  return SentBytes({.ranks = options.plan_ranks,
                    .gradient_bytes = step.memory.gradients * (divided ? options.plan_ranks : 1),
                    .send_bf16 = config.comm_dtype == "bf16",
                    .shard = options.plan_shard,
                    .micros = config.deterministic ? trial.batch.accumulation : 0,
                    .rounds_of_micros = CountRounds(trial.batch.global, trial.batch.micro,
                                                    std::max<int64_t>(1, options.fixed_batch), options.plan_ranks),
                    .divided_bytes = step.divided_weights,
                    .graph_bytes = step.sent_in_program});
}

// Counts the exchanges of the first micro-batch, which are those of every micro-batch.
void CountExchanges(const std::vector<ProgramProfile>& profiles, StepMemory* step) {
  const auto micro = std::ranges::find_if(profiles, [](const ProgramProfile& p) { return p.name == "micro_first"; });
  if (micro == profiles.end()) return;
  step->sent_in_program = CountTraffic(micro->program->graph()).bytes;
  step->divided_weights = CountGathered(micro->program->graph());
}

// Leaves zeros if the least budgets are unknown: with fixed recomputation, several ranks or a fixed batch size.
absl::Status FindLeastBudgets(const TrainingRun& trial, StepMemory* step) {
  const RecomputeMode mode = trial.session_options.recompute.mode;
  const bool open = mode == RecomputeMode::kAuto || mode == RecomputeMode::kBudget;
  if (!open || trial.session_options.plan_ranks > 1) return absl::OkStatus();
  ASSIGN_OR_RETURN(step->least_budget,
                   FindLeastBudget({trial.data.models, *trial.backend}, trial.session_options, trial.batch.global));
  if (trial.session_options.fixed_batch > 0) return absl::OkStatus();
  SessionOptions one = trial.session_options;
  one.micro_batch = 1;
  ASSIGN_OR_RETURN(step->least_of_one, FindLeastBudget({trial.data.models, *trial.backend}, one, trial.batch.global));
  return absl::OkStatus();
}

absl::StatusOr<StepMemory> MakePlan(const TrainConfig& config, const TrainingRun& trial) {
  StepMemory step;
  ASSIGN_OR_RETURN(const auto session, PlannedSession(trial, trial.session_options.recompute));
  step.memory = session->memory();
  const auto profiles = session->Profile();
  const ProgramProfile& largest = Largest(profiles);
  CountExchanges(profiles, &step);
  step.arena = largest.program->memory();
  step.repeated = largest.repeated;
  step.extra_share = largest.extra_share;
  // Without recomputation, that is the plan that keeps everything.
  std::unique_ptr<Session> second;
  if (step.repeated > 0) {
    ASSIGN_OR_RETURN(second, PlannedSession(trial, {.mode = RecomputeMode::kNone}));
  }
  const Session* keeping = second != nullptr ? second.get() : session.get();
  const auto kept = keeping->Profile();
  const Graph& graph = Largest(kept).program->graph();
  ASSIGN_OR_RETURN(const std::vector<size_t> workspaces, trial.backend->Workspaces(graph));
  for (size_t bytes : workspaces) step.workspace = std::max(step.workspace, static_cast<int64_t>(bytes));
  const RecomputePlanner planner(graph, workspaces, trial.backend->device() == "cpu" ? 64 : 512);
  const std::vector<RecomputePlan>& frontier = planner.Frontier();
  step.budgets = MakeBudgets(frontier, keeping->memory());
  constexpr int64_t kMostSamples = 1 << 16;
  ASSIGN_OR_RETURN(step.largest_micro,
                   LargestMicroBatch(trial.data.models, *trial.backend, trial.session_options, kMostSamples, 0));
  RETURN_IF_ERROR(FindLeastBudgets(trial, &step));
  if (!config.plot.empty()) RETURN_IF_ERROR(Draw(config, planner, frontier, step, trial));
  return step;
}

struct MemoryRow {
  const char* key;
  const char* name;
  int64_t SessionMemory::*bytes;
};
constexpr MemoryRow kRows[] = {
    {"parameters", "parameters", &SessionMemory::parameters},
    {"gradients", "gradients", &SessionMemory::gradients},
    {"sums", "sums of micro-batches", &SessionMemory::sums},
    {"moments", "moments", &SessionMemory::moments},
    {"statistics", "statistics, counters", &SessionMemory::statistics},
    {"packed", "packed weights", &SessionMemory::packed},
    {"feeds", "feeds", &SessionMemory::feeds},
    {"activations", "activations", &SessionMemory::activations},
    {"host", "model, batches, libraries", &SessionMemory::host},
};

std::string Mebibytes(int64_t bytes) { return StrCat(FormatWithCommas(bytes >> 20), " MiB"); }

std::string DescribeLeast(const TrainingRun& trial, const StepMemory& step) {
  const bool smaller = step.least_of_one > 0 && step.least_of_one < step.least_budget;
  return StrCat("`memory_budget` ", step.least_budget >> 20, "MiB with micro-batches of ", trial.batch.micro,
                smaller ? StrCat(", ", step.least_of_one >> 20, "MiB with micro-batches of 1") : "");
}

std::string_view DescribeShard(ShardLevel level) {
  constexpr std::string_view kDivided[] = {"", ", moments divided", ", moments and gradients divided",
                                           ", moments, gradients and weights divided"};
  return kDivided[static_cast<int>(level)];
}

std::string Page(const TrainConfig& config, const TrainingRun& trial, const StepMemory& step) {
  std::string text = PageRow("model", DescribeModel(*trial.data.models->model())) +
                     PageRow("backend", DescribeBackend(*trial.backend));
  text += PageRow("batch",
                  StrCat(trial.batch.global, " = ", trial.batch.micro, " per micro-batch × ", trial.batch.accumulation,
                         " accumulated", trial.session_options.fixed_batch > 0 ? ": " : "",
                         DescribeFixedBatch(trial.session_options.fixed_batch)));
  if (trial.session_options.plan_ranks > 1)
    text += PageRow("ranks", StrCat(trial.session_options.plan_ranks, ", of which each sends ",
                                    Bytes(WireBytes(config, trial, step)), " in an update; memory of one",
                                    DescribeShard(trial.session_options.plan_shard)));
  for (const MemoryRow& row : kRows) {
    text += absl::StrFormat("  %-28s %12s", row.name, Bytes(step.memory.*row.bytes));
    if (row.bytes == &SessionMemory::gradients && step.memory.gradients == 0)
      text += "  (among the activations until their update)";
    if (row.bytes == &SessionMemory::activations) {
      absl::StrAppendFormat(
          &text, "  (%.3f × the least; workspaces up to %s)",
          static_cast<double>(step.arena.arena) / std::max<double>(1, static_cast<double>(step.arena.lower_bound)),
          Bytes(step.workspace));
    }
    text += "\n";
  }
  text += absl::StrFormat("  %-28s %12s\n", "peak", Bytes(step.memory.total()));
  if (step.memory.mapped > 0)
    text += absl::StrFormat("  %-28s %12s  (besides; the system may drop these pages)\n", "frozen weights in the file",
                            Bytes(step.memory.mapped));
  if (step.memory.offloaded > 0)
    text += absl::StrFormat("  %-28s %12s  (besides; between two uses)\n", "activations in a file",
                            Bytes(step.memory.offloaded));
  if (step.divided_weights > 0)
    text +=
        PageRow("at the end", StrCat("rank 0 gathers ", Bytes(step.divided_weights),
                                     " of weights in a file beside the model, or in memory where the disk lacks room"));
  for (const std::string& line : BudgetChoices(trial)) text += PageRow("budget", line);
  text += PageRow("recompute", step.repeated == 0 ? "nothing"
                                                  : absl::StrFormat("%d nodes recomputed, %.1f%% of the time",
                                                                    step.repeated, 100 * step.extra_share));
  text += PageRow("largest", step.largest_micro == 0
                                 ? "not even one sample fits"
                                 : StrCat(step.largest_micro, " samples per micro-batch fit without recomputing more"));
  if (const std::string save = DescribeSave(trial.save); !save.empty()) text += PageRow("checkpoint", save);
  if (step.least_budget > 0) text += PageRow("least", FieldsToFlags(DescribeLeast(trial, step)));
  absl::StrAppendFormat(&text, "  %12s %12s %8s %8s\n", "budget", "activations", "nodes", "time");
  for (const Budget& b : step.budgets) {
    absl::StrAppendFormat(&text, "  %12s %12s %8d %7.3fx\n", Mebibytes(b.budget), Mebibytes(b.activations), b.repeated,
                          b.time);
  }
  return text;
}

Json ToJson(const TrainConfig& config, const TrainingRun& trial, const StepMemory& step) {
  Json json = {{"model", config.model},
               {"backend", trial.backend->name()},
               {"batch", trial.batch.global},
               {"micro_batch", trial.batch.micro},
               {"accumulation", trial.batch.accumulation},
               {"world", trial.session_options.plan_ranks},
               {"shard", ShardName(trial.session_options.plan_shard)},
               {"divided", trial.session_options.plan_shard != ShardLevel::kNone},
               {"wire_bytes", WireBytes(config, trial, step)},
               {"memory", Json::object()},
               {"peak_bytes", step.memory.total()},
               {"gathered_bytes", step.divided_weights},
               {"arena_bytes", step.arena.arena},
               {"arena_lower_bound_bytes", step.arena.lower_bound},
               {"workspace_bytes", step.workspace},
               {"repeated_nodes", step.repeated},
               {"recompute_share", step.extra_share},
               {"largest_micro_batch", step.largest_micro},
               {"least_memory_budget", step.least_budget},
               {"least_memory_budget_of_one_sample", step.least_of_one},
               {"budget_choices", BudgetChoices(trial)},
               {"save_bytes", trial.save.bytes},
               {"save_pause_seconds", trial.save.pause_seconds},
               {"budgets", Json::array()}};
  for (const MemoryRow& row : kRows) json["memory"][row.key] = step.memory.*row.bytes;
  json["mapped_bytes"] = step.memory.mapped;
  json["offloaded_bytes"] = step.memory.offloaded;
  for (const Budget& b : step.budgets) {
    json["budgets"].push_back({{"bytes", b.total},
                               {"memory_budget", b.budget},
                               {"activation_bytes", b.activations},
                               {"repeated_nodes", b.repeated},
                               {"time", b.time}});
  }
  return json;
}

}  // namespace

absl::StatusOr<int> RunPlan(const TrainConfig& config) {
  const bool many = config.world > 1;
  RETURN_IF_ERROR(
      RefuseUnused(config, {.subject = "one rank", .has_ranks = many, .has_shards = many || config.shard == "auto"}));
  if ((config.pipeline > 1 || config.tensor > 1) && !config.plot.empty())
    return Invalid("`plot`: shows the memory of a whole model, not of a `", config.pipeline > 1 ? "pipeline" : "tensor",
                   "`");
  if (!config.data.empty() && (config.world > 1 || config.pipeline > 1 || config.tensor > 1))
    return Invalid("`data`: ranks are planned without data");
  ASSIGN_OR_RETURN(TrainingRun trial, Prepare(config));
  for (const std::string& line : trial.data.surgery) LogInfo(config, line);
  if (config.pipeline > 1) {
    ASSIGN_OR_RETURN(const std::string stages, DescribePipeline(config, trial));
    RETURN_IF_ERROR(Print(stages));
    return kDone;
  }
  if (config.tensor > 1) {
    ASSIGN_OR_RETURN(const std::string parts, DescribeTensor(config, trial));
    RETURN_IF_ERROR(Print(parts));
    return kDone;
  }
  if (config.ladder) {
    ASSIGN_OR_RETURN(const std::string ladder, DescribeLadder(config, trial, Prepare));
    RETURN_IF_ERROR(Print(ladder));
    return kDone;
  }
  ASSIGN_OR_RETURN(const StepMemory step, MakePlan(config, trial));
  RETURN_IF_ERROR(Print(config.json ? WriteJson(ToJson(config, trial, step), 2) + "\n" : Page(config, trial, step)));
  return kDone;
}

}  // namespace onnxtrain::cli
