// onnxtrain plan: prints the memory of a training step from plans alone: nothing is allocated and nothing runs.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "frontend/base/machine.h"
#include "frontend/base/status.h"
#include "frontend/base/text_file.h"
#include "frontend/data/json_writer.h"
#include "optim/auto/batch_size.h"
#include "optim/auto/micro_batch.h"
#include "optim/auto/session_setup.h"
#include "optim/auto/synthetic_setup.h"
#include "optim/distributed/divided_state.h"
#include "optim/distributed/shard_choice.h"
#include "optim/distributed/traffic.h"
#include "optim/rematerialization/policy.h"
#include "optim/telemetry/format.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/commands/common.h"
#include "tools/onnxtrain/commands/pipeline_plan.h"
#include "tools/onnxtrain/commands/tensor_plan.h"
#include "tools/onnxtrain/report/memory_plot.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Budget {
  int64_t total = 0;  // bytes of everything
  int64_t activations = 0;
  int64_t repeated = 0;
  double time = 1;  // relative to keeping everything
};

struct StepMemory {
  SessionMemory memory;
  MemoryUse arena;        // of the largest program
  int64_t workspace = 0;  // bytes of the largest one
  int64_t repeated = 0;
  double extra_share = 0;       // of the time, spent on recomputation
  int64_t largest_micro = 0;    // 0: not even one sample fits
  std::vector<Budget> budgets;  // from the most to the least memory
  int64_t sent_in_program = 0;  // by one of several ranks, within the program of a micro-batch
  int64_t divided_weights = 0;  // bytes of the weights that it gathers
};

const ProgramProfile& Largest(const std::vector<ProgramProfile>& profiles) {
  return *std::max_element(profiles.begin(), profiles.end(), [](const auto& a, const auto& b) {
    return a.program->memory().arena < b.program->memory().arena;
  });
}

absl::StatusOr<std::unique_ptr<Session>> PlannedSession(const SyntheticSetup& trial, const RecomputeSpec& recompute) {
  SessionOptions options = trial.options;
  options.plan_only = true;
  options.recompute = recompute;
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                   Session::Create(trial.models, trial.backend.get(), std::move(options)));
  RETURN_IF_ERROR(session->Plan(trial.batch.global));
  return session;
}

std::vector<Budget> MakeBudgets(const std::vector<RecomputePlan>& plans, int64_t others) {
  constexpr size_t kMost = 12;
  std::vector<Budget> budgets;
  const double none = plans.front().seconds;
  const size_t stride = (plans.size() + kMost - 1) / kMost;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (i % stride != 0 && i + 1 != plans.size()) continue;
    const auto arena = static_cast<int64_t>(plans[i].arena);
    budgets.push_back({others + arena, arena, plans[i].repeated, none > 0 ? plans[i].seconds / none : 1});
  }
  return budgets;
}

// The planner is deterministic: the session's plan is among its plans.
absl::Status Draw(const TrainConfig& config, const RecomputePlanner& planner,
                  const std::vector<RecomputePlan>& frontier, const StepMemory& step, const SyntheticSetup& trial) {
  const RecomputePlan* taken = &frontier.front();
  std::vector<RecomputePlan> fixed;
  for (RecomputeMode mode : {RecomputeMode::kSqrt, RecomputeMode::kAll}) {
    if (trial.options.recompute.mode == mode) taken = &fixed.emplace_back(planner.Plan(mode));
  }
  for (const RecomputePlan& plan : frontier) {
    if (fixed.empty() && plan.arena == step.arena.arena) taken = &plan;
  }
  const std::string title =
      StrCat(config.model, ", ", trial.batch.micro, " samples, ", taken->repeated, " nodes recomputed");
  return WriteTextFile(config.plot, MemoryPlot(title, planner.Model(), taken->recomputed, taken->arena));
}

// Of the state among the ranks, as train decides it.
absl::StatusOr<ShardLevel> ChooseShard(const TrainConfig& config, const SyntheticSetup& trial) {
  if (config.shard != "auto") return FindShardLevel(config.shard);
  ASSIGN_OR_RETURN(const auto whole, PlannedSession(trial, trial.options.recompute));
  return ChooseShardLevel({.ranks = trial.options.plan_ranks,
                           .whole = whole->memory(),
                           .available = static_cast<int64_t>(AvailableMemory()),
                           .may_divide = CheckDivides(trial.options.optimizer).ok(),
                           .may_divide_gradients = MayDivideGradients(config, trial.backend->device())});
}

// Has the plan count the copy that a checkpoint is written from, of which ranks that divide the state have a part each.
absl::Status PlanRanks(const TrainConfig& config, SyntheticSetup* trial) {
  trial->options.plan_ranks = static_cast<int>(config.world);
  trial->options.caller_bytes += trial->state_bytes;
  ASSIGN_OR_RETURN(trial->options.plan_shard, ChooseShard(config, *trial));
  if (trial->options.plan_shard != ShardLevel::kNone)
    trial->options.caller_bytes -= trial->state_bytes - trial->state_bytes / config.world;
  return absl::OkStatus();
}

// Of each rank in an update.
int64_t WireBytes(const TrainConfig& config, const SyntheticSetup& trial, const StepMemory& step) {
  const SessionOptions& options = trial.options;
  const bool divided = options.plan_shard >= ShardLevel::kGradients;
  return SentBytes({.ranks = options.plan_ranks,
                    .gradient_bytes = step.memory.gradients * (divided ? options.plan_ranks : 1),
                    .rounds = config.comm_dtype == "bf16",
                    .shard = options.plan_shard,
                    .micros = config.deterministic ? trial.batch.accumulation : 0,
                    .rounds_of_micros = CountRounds(trial.batch.global, trial.batch.micro,
                                                    std::max<int64_t>(1, options.fixed_batch), options.plan_ranks),
                    .divided_bytes = step.divided_weights,
                    .graph_bytes = step.sent_in_program});
}

// Of the first micro-batch; the others exchange the same.
void CountExchanges(const std::vector<ProgramProfile>& profiles, StepMemory* step) {
  const auto micro = std::ranges::find_if(profiles, [](const ProgramProfile& p) { return p.name == "micro_first"; });
  if (micro == profiles.end()) return;
  step->sent_in_program = CountTraffic(micro->program->graph()).bytes;
  step->divided_weights = CountGathered(micro->program->graph());
}

absl::StatusOr<StepMemory> MakePlan(const TrainConfig& config, const SyntheticSetup& trial) {
  StepMemory step;
  ASSIGN_OR_RETURN(const auto session, PlannedSession(trial, trial.options.recompute));
  step.memory = session->memory();
  const auto profiles = session->Profile();
  const ProgramProfile& largest = Largest(profiles);
  CountExchanges(profiles, &step);
  step.arena = largest.program->memory();
  step.repeated = largest.repeated;
  step.extra_share = largest.extra_share;
  // Where nothing is recomputed, that is the plan that keeps everything.
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
  step.budgets = MakeBudgets(frontier, keeping->memory().total() - keeping->memory().activations);
  constexpr int64_t kMostSamples = 1 << 16;
  ASSIGN_OR_RETURN(step.largest_micro, LargestMicroBatch(trial.models, *trial.backend, trial.options, kMostSamples, 0));
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

std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

std::string_view DescribeShard(ShardLevel level) {
  constexpr std::string_view kDivided[] = {"", ", moments divided", ", moments and gradients divided",
                                           ", moments, gradients and weights divided"};
  return kDivided[static_cast<int>(level)];
}

std::string Page(const TrainConfig& config, const SyntheticSetup& trial, const StepMemory& step) {
  std::string text =
      PageRow("model", DescribeModel(*trial.models->model())) + PageRow("backend", DescribeBackend(*trial.backend));
  text += PageRow("batch", StrCat(trial.batch.global, " = ", trial.batch.micro, " per micro-batch × ",
                                  trial.batch.accumulation, " accumulated", trial.options.fixed_batch > 0 ? ": " : "",
                                  DescribeFixedBatch(trial.options.fixed_batch)));
  if (trial.options.plan_ranks > 1)
    text += PageRow("ranks",
                    StrCat(trial.options.plan_ranks, ", of which each sends ", Bytes(WireBytes(config, trial, step)),
                           " in an update; memory of one", DescribeShard(trial.options.plan_shard)));
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
  if (step.divided_weights > 0)
    text +=
        PageRow("at the end", StrCat("rank 0 gathers ", Bytes(step.divided_weights),
                                     " of weights in a file beside the model, or in memory where the disk lacks room"));
  text += PageRow("recompute", step.repeated == 0 ? "nothing"
                                                  : absl::StrFormat("%d nodes recomputed, %.1f%% of the time",
                                                                    step.repeated, 100 * step.extra_share));
  text += PageRow("largest", step.largest_micro == 0
                                 ? "not even one sample fits"
                                 : StrCat(step.largest_micro, " samples per micro-batch fit without recomputing more"));
  absl::StrAppendFormat(&text, "  %12s %12s %8s %8s\n", "budget", "activations", "nodes", "time");
  for (const Budget& b : step.budgets) {
    absl::StrAppendFormat(&text, "  %12s %12s %8d %7.3fx\n", Bytes(b.total), Bytes(b.activations), b.repeated, b.time);
  }
  return text;
}

Json ToJson(const TrainConfig& config, const SyntheticSetup& trial, const StepMemory& step) {
  Json json = {{"model", config.model},
               {"backend", trial.backend->name()},
               {"batch", trial.batch.global},
               {"micro_batch", trial.batch.micro},
               {"accumulation", trial.batch.accumulation},
               {"world", trial.options.plan_ranks},
               {"shard", ShardName(trial.options.plan_shard)},
               {"divided", trial.options.plan_shard != ShardLevel::kNone},
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
               {"budgets", Json::array()}};
  for (const MemoryRow& row : kRows) json["memory"][row.key] = step.memory.*row.bytes;
  for (const Budget& b : step.budgets) {
    json["budgets"].push_back(
        {{"bytes", b.total}, {"activation_bytes", b.activations}, {"repeated_nodes", b.repeated}, {"time", b.time}});
  }
  return json;
}

}  // namespace

absl::StatusOr<int> RunPlan(const TrainConfig& config) {
  if (config.world == 1 && FindShardLevel(config.shard) != ShardLevel::kNone)
    return Invalid("`shard` ", config.shard, ": has no effect on one rank (`world`)");
  if (config.world == 1 && config.comm_dtype != "f32")
    return Invalid("`comm_dtype` ", config.comm_dtype, ": has no effect on one rank (`world`)");
  if ((config.pipeline > 1 || config.tensor > 1) && !config.plot.empty())
    return Invalid("`plot`: shows the memory of a whole model, not of a `", config.pipeline > 1 ? "pipeline" : "tensor",
                   "`");
  ASSIGN_OR_RETURN(SyntheticSetup trial, PrepareSynthetic(config, LoadBackend));
  if (config.world > 1) RETURN_IF_ERROR(PlanRanks(config, &trial));
  for (const std::string& line : trial.surgery) LogInfo(config, line);
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
  ASSIGN_OR_RETURN(const StepMemory step, MakePlan(config, trial));
  RETURN_IF_ERROR(Print(config.json ? WriteJson(ToJson(config, trial, step), 2) + "\n" : Page(config, trial, step)));
  return kDone;
}

}  // namespace onnxtrain::cli
