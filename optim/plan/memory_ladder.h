// Ways to train within less memory, in the order in which `memory_budget` takes them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/config/config.h"
#include "optim/plan/micro_batch.h"
#include "optim/plan/step_plan.h"
#include "optim/step/session.h"

namespace onnxtrain {

// One way to train. Recomputation is no rung: on each, the backward pass recomputes as much as the budget needs.
struct MemoryRung {
  std::vector<std::pair<std::string, std::string>> fields;  // that differ from the configuration, with their values
  std::string changes;                                      // what it changes in the numbers; "": nothing
  bool divides = false;                                     // an update has the fewest micro-batches that fit
  bool offloads = false;  // activations go to a file where recomputation does not suffice
  OptimizerSpec optimizer;

  // Returns the fields and values for people; "as configured" if there are none.
  std::string Name() const;
};

// Lists the rungs that `config` leaves open in the order of their cost, the configuration itself first: by what they
// change in the numbers, nothing first, then by the time that they take.
// `backend`: that of the run.
std::vector<MemoryRung> ListRungs(const TrainConfig& config, const Backend& backend, const SessionOptions& options,
                                  const BatchPlan& batch);

// Lists ways to train adapters beside the frozen model (LoRA), which plans show beside the rungs: they train other
// weights, so that no `memory_budget` takes them. Empty if the configuration has adapters already, or the model has no
// product that adapters can be trained beside.
std::vector<MemoryRung> ListAdapterForms(const TrainConfig& config, const OnnxModel& model);

// Makes the plan of the whole run fit options->recompute.memory_budget, on the first rung that does. Rungs that change
// numbers are taken only with `allow_lossy_memory`. Returns a line that names the rung; "" if that is the
// configuration itself. If nothing fits, the error names the smallest sufficient budget. `samples`: of the data.
absl::StatusOr<std::string> FitBudget(const TrainConfig& config, const BudgetedModel& model, int64_t samples,
                                      SessionOptions* options, BatchPlan* batch);

// The plan of a rung. Seconds are those of an update, by the cost model.
struct RungPlan {
  MemoryRung rung;
  BatchPlan batch;
  SessionMemory kept;  // without recomputation
  double kept_seconds = 0;
  SessionMemory least;  // with as much as possible
  double least_seconds = 0;
  int64_t least_budget = 0;  // the smallest `memory_budget` that fits
  bool saves = true;         // every rung before it needs a larger `memory_budget`: one may take this rung
};

// Plans a rung, in micro-batches of one sample where it divides updates.
absl::StatusOr<RungPlan> PlanRung(const MemoryRung& rung, const BudgetedModel& model, const SessionOptions& options,
                                  const BatchPlan& batch);
// Plans every rung, and finds those that save memory.
absl::StatusOr<std::vector<RungPlan>> PlanLadder(const TrainConfig& config, const BudgetedModel& model,
                                                 const SessionOptions& options, const BatchPlan& batch);

}  // namespace onnxtrain
