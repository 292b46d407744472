#include "tools/onnxtrain/commands/tensor_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "frontend/base/status.h"
#include "frontend/data/sources/json_writer.h"
#include "optim/parallel/tensor/part_plan.h"
#include "optim/record/telemetry/format.h"
#include "tools/onnxtrain/commands/common.h"
#include "tools/onnxtrain/commands/memory_columns.h"
#include "tools/onnxtrain/report/start_page.h"

namespace onnxtrain::cli {
namespace {

std::string Bytes(int64_t bytes) { return FormatBytes(static_cast<double>(bytes)); }

std::string Page(const TrainConfig& config, const SyntheticSetup& setup, const PartPlan& plan) {
  std::string text =
      PageRow("model", DescribeModel(*setup.models->model())) + PageRow("backend", DescribeBackend(*setup.backend));
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

nlohmann::ordered_json ToJson(const TrainConfig& config, const SyntheticSetup& setup, const PartPlan& plan) {
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

absl::StatusOr<std::string> DescribeTensor(const TrainConfig& config, const SyntheticSetup& setup) {
  SessionOptions options = setup.options;
  options.tensor.count = static_cast<int>(config.tensor);
  ASSIGN_OR_RETURN(const PartPlan plan, PlanPart(setup.models, *setup.backend, std::move(options), setup.batch.global));
  return config.json ? WriteJson(ToJson(config, setup, plan), 2) + "\n" : Page(config, setup, plan);
}

}  // namespace onnxtrain::cli
