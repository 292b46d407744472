#include <algorithm>
#include <limits>

#include "frontend/base/status.h"
#include "frontend/onnx/import/control_flow.h"

namespace onnxtrain {
namespace {

// The values of a Loop: its carried ones, and those that each iteration adds to.
struct LoopPlan {
  const ParsedGraph* body = nullptr;
  size_t carried = 0, stacked = 0;
  int64_t trip_count = std::numeric_limits<int64_t>::max();
  bool conditioned = false;
  int64_t runs_first = 1;  // whether the condition holds before the first iteration
};

absl::StatusOr<LoopPlan> PlanLoop(ControlNode& c) {
  LoopPlan plan;
  ASSIGN_OR_RETURN(plan.body, FindBody(c.node, "body"));
  c.inputs.resize(std::max<size_t>(c.inputs.size(), 2));
  plan.carried = c.inputs.size() - 2;
  const size_t outputs = plan.body->outputs.size();
  if (outputs < 1 + plan.carried)
    return Invalid("carries ", plan.carried, " values, its body has ", outputs, " outputs");
  plan.stacked = outputs - 1 - plan.carried;
  if (c.node.outputs.size() > outputs - 1)
    return Invalid("lists ", c.node.outputs.size(), " outputs, its body has ", outputs - 1);
  const bool counted = c.inputs[0].valid();
  plan.conditioned = c.inputs[1].valid();
  if (!counted && !plan.conditioned) return Invalid("has neither a trip count nor a condition: it would never end");
  if (counted) {
    ASSIGN_OR_RETURN(plan.trip_count, c.known.FindInt(c.inputs[0], "its trip count"));
  }
  if (plan.conditioned) {
    ASSIGN_OR_RETURN(plan.runs_first, c.known.FindInt(c.inputs[1], "its condition"));
  }
  return plan;
}

ImportValuesOr ImportIteration(ControlNode& c, int64_t i, const ImportValues& state) {
  ImportValues arguments = {c.builder.Constant(HostTensor::FromInts({DType::kInt64, {}}, {&i, 1})),
                            c.builder.Constant(HostTensor::Scalar(DType::kBool, 1))};
  arguments.insert(arguments.end(), state.begin(), state.end());
  return c.import_body({.attribute = "body", .label = StrCat(i), .inputs = std::move(arguments)});
}

}  // namespace

ImportValuesOr ImportLoop(ControlNode& c) {
  ASSIGN_OR_RETURN(const LoopPlan plan, PlanLoop(c));
  ImportValues state(c.inputs.begin() + 2, c.inputs.end());
  std::vector<std::vector<Val>> parts(plan.stacked);
  int64_t go = plan.runs_first;
  for (int64_t i = 0; i < plan.trip_count && go != 0; ++i) {
    ASSIGN_OR_RETURN(const ImportValues results, ImportIteration(c, i, state));
    if (plan.conditioned) {
      ASSIGN_OR_RETURN(go, c.known.FindInt(results[0], StrCat("its condition after iteration ", i)));
    }
    state.assign(results.begin() + 1, results.begin() + 1 + static_cast<int64_t>(plan.carried));
    for (size_t k = 0; k < plan.stacked; ++k) {
      ASSIGN_OR_RETURN(parts[k].emplace_back(), RequireTensor(results[1 + plan.carried + k], "a scan output"));
    }
  }
  for (size_t k = 0; k < plan.stacked && plan.carried + k < c.node.outputs.size(); ++k) {
    state.emplace_back();
    if (!c.IsRead(c.node.outputs[plan.carried + k])) continue;
    ASSIGN_OR_RETURN(state.back(), StackIterations(c.builder, parts[k], 0, &plan.body->outputs[1 + plan.carried + k]));
  }
  return state;
}

}  // namespace onnxtrain
