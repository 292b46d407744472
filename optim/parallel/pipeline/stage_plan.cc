#include "optim/parallel/pipeline/stage_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "frontend/base/status.h"
#include "optim/parallel/pipeline/stage.h"

namespace onnxtrain {
namespace {

int64_t MessageBytes(const Boundary& boundary) {
  return static_cast<int64_t>((boundary.type.bytes() + kFeedAlignment - 1) / kFeedAlignment * kFeedAlignment);
}

// Bytes that a stage sends for one micro-batch: activations forward, gradients back.
int64_t MicroBytes(const Stage& stage) {
  int64_t bytes = 0;
  for (const Boundary& boundary : stage.out) bytes += MessageBytes(boundary);
  for (const Boundary& boundary : stage.in) bytes += boundary.differentiable ? MessageBytes(boundary) : 0;
  return bytes;
}

// Of weights that several stages read: a later stage sends its gradient, the first one the updated weight.
int64_t SharedBytes(const PreparedModel& whole, const Placement& placement, int stage) {
  int64_t bytes = 0;
  for (const WeightDecision& w : whole.weights) {
    const auto found = placement.weights.find(w.name);
    if (!w.trained || found == placement.weights.end() || !placement.Holds(w.name, stage)) continue;
    const int64_t messages = placement.Owner(w.name) == stage ? std::ssize(found->second) - 1 : 1;
    bytes += messages * static_cast<int64_t>(w.type.bytes());
  }
  return bytes;
}

class Planner {
 public:
  Planner(PreparedModels& models, const SessionOptions& options) : models_(models), options_(options) {}

  absl::Status Place() {
    ASSIGN_OR_RETURN(whole_, PrepareFor(options_.micro_batch));
    const LossGraph reduced = ReduceToLoss(whole_);
    ASSIGN_OR_RETURN(placement_, PlaceWeights(reduced.graph, reduced.results, options_.pipeline.count));
    return absl::OkStatus();
  }

  double TimeShare(int stage) const {
    return placement_.seconds[stage] / std::accumulate(placement_.seconds.begin(), placement_.seconds.end(), 0.0);
  }

  absl::StatusOr<int64_t> SentBytes(int stage, int64_t samples) {
    const int64_t micro = std::min(samples, options_.micro_batch);
    int64_t bytes = SharedBytes(whole_, placement_, stage);
    for (const auto& [size, count] : {std::pair(micro, samples / micro), {samples % micro, int64_t{1}}}) {
      if (size == 0) continue;
      ASSIGN_OR_RETURN(const PreparedModel part, PrepareFor(size));
      ASSIGN_OR_RETURN(const Stage cut, CutStage(part, placement_, stage));
      bytes += count * MicroBytes(cut);
    }
    return bytes;
  }

 private:
  absl::StatusOr<PreparedModel> PrepareFor(int64_t samples) {
    return models_.Prepare(MakePrepareOptions(options_), samples, true, false);
  }

  PreparedModels& models_;
  const SessionOptions& options_;
  PreparedModel whole_;
  Placement placement_;
};

}  // namespace

absl::StatusOr<std::vector<StagePlan>> PlanStages(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                                  SessionOptions options, int64_t samples) {
  options.plan_only = true;
  Planner planner(*models, options);
  RETURN_IF_ERROR(planner.Place());
  std::vector<StagePlan> plans;
  for (int stage = 0; stage < options.pipeline.count; ++stage) {
    options.pipeline.index = stage;
    ASSIGN_OR_RETURN(const auto session, Session::Create(models, &backend, options));
    RETURN_IF_ERROR(session->Plan(samples));
    StagePlan& plan = plans.emplace_back();
    plan.time_share = planner.TimeShare(stage);
    plan.memory = session->memory();
    ASSIGN_OR_RETURN(plan.sent_bytes, planner.SentBytes(stage, samples));
  }
  return plans;
}

}  // namespace onnxtrain
