#include "optim/parallel/tensor/part_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "frontend/base/status.h"
#include "optim/parallel/tensor/split_model.h"
#include "optim/step/program/programs.h"

namespace onnxtrain {

namespace {

// Counts the runs of an update over the micro programs that the session has compiled.
void AddTraffic(const Session& session, int64_t micro, int64_t samples, PartPlan* plan) {
  const int64_t whole = samples / micro, rest = samples % micro;
  const auto add = [&](std::string_view name, int64_t size, int64_t runs) {
    if (runs == 0) return;
    for (const ProgramProfile& profile : session.Profile()) {
      if (profile.name != name || profile.samples != size) continue;
      const ProgramTraffic traffic = CountTraffic(profile.program->graph());
      plan->exchanges += runs * traffic.exchanges;
      plan->sent_bytes += runs * traffic.bytes;
      return;
    }
  };
  add(kProgramNames[static_cast<int>(ProgramKind::kMicroFirst)], micro, 1);
  add(kProgramNames[static_cast<int>(ProgramKind::kMicroNext)], micro, whole - 1);
  add(kProgramNames[static_cast<int>(ProgramKind::kMicroNext)], rest, rest > 0 ? 1 : 0);
}

}  // namespace

absl::StatusOr<PartPlan> PlanPart(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                  SessionOptions options, int64_t samples) {
  options.plan_only = true;
  options.tensor.index = 0;
  ASSIGN_OR_RETURN(const PreparedModel whole,
                   models->Prepare(MakePrepareOptions(options), options.micro_batch, true, false));
  ASSIGN_OR_RETURN(const ModelSplit split, SplitModel(whole, nullptr, 0, options.tensor.count));
  PartPlan plan;
  for (const WeightDecision& w : whole.weights) {
    if (!w.trained) continue;
    const bool divided = split.weights.contains(w.name);
    ++plan.trained_weights, plan.trained_elements += w.type.elements();
    plan.divided_weights += divided ? 1 : 0, plan.divided_elements += divided ? w.type.elements() : 0;
  }
  const int64_t micro = std::min(samples, options.micro_batch);
  ASSIGN_OR_RETURN(const auto session, Session::Create(models, &backend, std::move(options)));
  RETURN_IF_ERROR(session->Plan(samples));
  plan.memory = session->memory();
  AddTraffic(*session, micro, samples, &plan);
  return plan;
}

}  // namespace onnxtrain
