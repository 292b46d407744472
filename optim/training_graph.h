// Model + loss + backward + update → the graphs of a session's programs. Pure graph building: no memory, no device.
//
//   micro   forward, loss, backward of one micro-batch. The first of a window writes pending gradients, losses and
//           statistics, the next ones add to them.
//   apply   finite check, global norm, clipping, schedule, update; commits pending statistics. When a gradient is not
//           finite, parameters, moments and counters stay as they are and `skipped` is counted.
//   step    micro and apply in one, for windows of one micro-batch: gradients live only until their update, in the
//           activation arena, and nothing is pending.
//   eval    inference mode: losses are added to the evaluation's sums, or the model's outputs are given.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/loss.h"
#include "optim/loss_scale.h"
#include "optim/groups.h"
#include "optim/metrics.h"
#include "optim/optimizer.h"

namespace onnxtrain {

// Scalar slots that the device keeps for the host. Pending ones belong to the running window. Those of a loss are there for
// every term: OfTerm in loss.h.
namespace slot {
inline constexpr char kWindowLoss[] = "$window_loss";        // pending: sum of losses
inline constexpr char kWindowCorrect[] = "$window_correct";  // pending
inline constexpr char kWindowWeight[] = "$window_weight";    // W of the window, written by the host
inline constexpr char kSumLoss[] = "$sum_loss";              // since the last report, applied updates only
inline constexpr char kWindowTargets[] = "$window_targets";  // that kWindowCorrect is a part of, written by the host
inline constexpr char kSumTargets[] = "$sum_targets";
inline constexpr char kSumCorrect[] = "$sum_correct";
inline constexpr char kSumWeight[] = "$sum_weight";
inline constexpr char kNorm[] = "$norm";                     // of the last update's gradient, before clipping
inline constexpr char kRate[] = "$rate";                     // learning rate of the last update
inline constexpr char kPlateau[] = "$plateau";               // factor of the rate under the schedule plateau, written by the host
inline constexpr char kApplied[] = "$applied";               // i64: updates applied since the session began
inline constexpr char kSkipped[] = "$skipped";               // i64: updates skipped since the session began
inline constexpr char kSkippedInARow[] = "$skipped_in_a_row";  // i64: of them, since the last one that was applied
inline constexpr char kLossScale[] = "$loss_scale";          // S: gradients are S times as large until they are applied
inline constexpr char kScaleApplied[] = "$scale_applied";    // i64: updates applied since S changed
}  // namespace slot

// What a step adds to a graph is called "$…"; names of a model that begin so are refused (prepare.h), so that none meet.
std::string GradName(const std::string& parameter);   // its gradient, as graph input (to add to) and output
std::string ParamName(const std::string& group);      // a group's flat parameters
std::string MomentName(std::string_view state, const std::string& unit);  // of a group or parameter
inline constexpr char kStatistics[] = "$statistics";  // all running statistics, flat
inline constexpr char kPending[] = "$pending";        // those of the window that is not applied yet

inline constexpr char kAverage[] = "average";         // the moving average of weights, for MomentName: laid out as they are
// Do nodes of this source belong to the update, and not to the model, its loss or their gradients?
bool IsUpdateSource(std::string_view source);

struct MicroOptions {
  bool first = true;           // write; else add to what is pending
  bool outputs = false;        // the model's outputs are graph outputs as well
  bool scaled = false;         // gradients are multiplied by kLossScale
};

// `model` has been imported for training with its trained weights marked kParameter. Besides the gradients, the graph has
// outputs kWindowLoss of each term, kWindowCorrect and one per state update (the names of model.state_updates). With !first these
// stand `into` inputs of the same names.
absl::StatusOr<Graph> BuildMicro(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss, int64_t batch,
                                 const MicroOptions& options);

// Adds the loss to kWindowLoss and kWindowCorrect, in the mode that `model` has been imported for; the metrics' tensors are
// outputs.
absl::StatusOr<Graph> BuildEval(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss, int64_t batch,
                                const std::vector<Metric>& metrics);

// The model's outputs in inference mode, those that the file declares as halves rounded to them.
Graph BuildPredict(const ImportedModel& model);

// One contiguous arena of parameters that are updated alike: ParamName, GradName, MomentName of its name. A rule that needs
// whole tensors reads and writes its members instead, under the names that BuildStep uses.
struct FlatGroup {
  std::string name;
  int64_t elements = 0;
  UpdateRule rule;
  std::vector<std::pair<std::string, Shape>> members;
};

struct UpdateSpec {
  DType dtype = DType::kFloat32;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  size_t losses = 1;  // how many are added up
  std::optional<LossScaleSpec> loss_scale;
};

// `state_elements`: of kStatistics and kPending; 0: the model has no statistics.
absl::StatusOr<Graph> BuildApply(const UpdateSpec& spec, const std::vector<FlatGroup>& groups, int64_t state_elements);

// Exchanges the groups' weights and their averages.
Graph BuildSwap(DType dtype, const std::vector<FlatGroup>& groups);

// The rule runs on each parameter by itself; its moments are inputs MomentName(STATE, PARAMETER).
absl::StatusOr<Graph> BuildStep(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss, int64_t batch,
                                const UpdateSpec& spec, const std::map<std::string, UpdateRule>& rules);

}  // namespace onnxtrain
