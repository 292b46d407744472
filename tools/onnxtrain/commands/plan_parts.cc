#include "tools/onnxtrain/commands/plan_parts.h"

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>
#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/base/units.h"
#include "frontend/data/sources/json.h"
#include "optim/parallel/pipeline/pipeline_session.h"
#include "optim/parallel/pipeline/stage_plan.h"
#include "optim/parallel/tensor/part_plan.h"
#include "optim/step/session.h"
#include "tools/onnxtrain/commands/command.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

// What the memory of a session holds, by name, for plans.

struct MemoryColumn {
  const char* key;
  int64_t SessionMemory::*bytes;
};

inline constexpr MemoryColumn kMemoryColumns[] = {
    {"parameters", &SessionMemory::parameters},   {"gradients", &SessionMemory::gradients},
    {"moments", &SessionMemory::moments},         {"packed", &SessionMemory::packed},
    {"activations", &SessionMemory::activations}, {"feeds", &SessionMemory::feeds}};

std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

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

nlohmann::ordered_json ToJson(const TrainConfig& config, const TrainingRun& setup, const std::vector<StagePlan>& stages,
                              double bubble) {
  nlohmann::ordered_json json = {{"model", config.model},
                                 {"backend", setup.backend->name()},
                                 {"batch", setup.batch.global},
                                 {"micro_batch", setup.batch.micro},
                                 {"accumulation", setup.batch.accumulation},
                                 {"bubble_share", bubble},
                                 {"stages", nlohmann::ordered_json::array()}};
  for (const StagePlan& plan : stages) {
    nlohmann::ordered_json stage = {{"time_share", plan.time_share}, {"memory", nlohmann::ordered_json::object()}};
    for (const MemoryColumn& column : kMemoryColumns) stage["memory"][column.key] = plan.memory.*column.bytes;
    stage["peak_bytes"] = plan.memory.total();
    stage["wire_bytes"] = plan.sent_bytes;
    json["stages"].push_back(std::move(stage));
  }
  return json;
}

}  // namespace

absl::StatusOr<std::string> DescribePipeline(const TrainConfig& config, const TrainingRun& setup) {
  SessionOptions options = setup.session_options;
  options.pipeline.count = static_cast<int>(config.pipeline);
  ASSIGN_OR_RETURN(const std::vector<StagePlan> stages,
                   PlanStages(setup.data.models, *setup.backend, std::move(options), setup.batch.global));
  const double bubble = BubbleShare(static_cast<int>(config.pipeline), setup.batch.accumulation);
  return config.json ? WriteJson(ToJson(config, setup, stages, bubble), 2) + "\n" : Page(setup, stages, bubble);
}

namespace {

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

nlohmann::ordered_json ToJson(const TrainConfig& config, const TrainingRun& setup, const PartPlan& plan) {
  nlohmann::ordered_json json = {{"model", config.model},
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
                                 {"memory", nlohmann::ordered_json::object()}};
  for (const MemoryColumn& row : kMemoryColumns) json["memory"][row.key] = plan.memory.*row.bytes;
  json["peak_bytes"] = plan.memory.total();
  return json;
}

}  // namespace

absl::StatusOr<std::string> DescribeTensor(const TrainConfig& config, const TrainingRun& setup) {
  SessionOptions options = setup.session_options;
  options.tensor.count = static_cast<int>(config.tensor);
  ASSIGN_OR_RETURN(const PartPlan plan,
                   PlanPart(setup.data.models, *setup.backend, std::move(options), setup.batch.global));
  return config.json ? WriteJson(ToJson(config, setup, plan), 2) + "\n" : Page(config, setup, plan);
}

}  // namespace onnxtrain::cli
