// Builds the graphs of a session's programs from model, loss and update rule. Pure graph building: no memory, no
// device.
//
//   micro   forward, loss and backward of one micro-batch. The first micro-batch of a global batch writes pending
//           gradients, losses and statistics, the next ones accumulate into them.
//   apply   finite check, global norm, clipping, schedule and update; commits pending statistics. If a gradient is not
//           finite, parameters, moments and counters keep their values and `skipped` is incremented.
//   step    micro and apply in one, for global batches of one micro-batch: gradients live in the activation arena until
//           their update, and nothing is pending.
//   eval    inference mode: adds losses to the sums of the evaluation, or outputs predictions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "frontend/onnx/import.h"
#include "optim/config/optimizer.h"
#include "optim/loop/metrics.h"
#include "optim/step/groups.h"
#include "optim/step/loss.h"
#include "optim/step/loss_scale.h"

namespace onnxtrain {

// Names of scalars in device memory. "Pending" ones belong to the current global batch. Those of a loss exist per term
// (TermName, loss.h).
namespace device_scalar {
inline constexpr char kBatchLoss[] = "$batch_loss";                // pending: sum of the losses
inline constexpr char kBatchCorrect[] = "$batch_correct";          // pending
inline constexpr char kBatchDenominator[] = "$batch_denominator";  // W of the global batch, written by the host
inline constexpr char kSumLoss[] = "$sum_loss";                    // since the last report, applied updates only
inline constexpr char kBatchTargets[] =
    "$batch_targets";  // predictions that kBatchCorrect is counted over, written by the host
inline constexpr char kSumTargets[] = "$sum_targets";
inline constexpr char kSumCorrect[] = "$sum_correct";
inline constexpr char kSumDenominator[] = "$sum_denominator";
inline constexpr char kNorm[] = "$norm";                       // of the last update's gradient, before clipping
inline constexpr char kRate[] = "$rate";                       // learning rate of the last update
inline constexpr char kPlateau[] = "$plateau";                 // factor of the rate, written by the host
inline constexpr char kApplied[] = "$applied";                 // i64: updates applied since the session began
inline constexpr char kSkipped[] = "$skipped";                 // i64: updates skipped since the session began
inline constexpr char kSkippedInARow[] = "$skipped_in_a_row";  // i64: skipped since the last applied update
inline constexpr char kLossScale[] = "$loss_scale";        // S: gradients are S times as large until they are applied
inline constexpr char kScaleApplied[] = "$scale_applied";  // i64: updates applied since S changed
inline constexpr char kSquaredNorm[] = "$squared_norm";    // f64: of the gradient, where ranks have parts of it
}  // namespace device_scalar

// Names that training adds to a graph begin with "$"; models with such names are rejected (prepared_models.h).
std::string GradName(const std::string& parameter);   // of its gradient: graph output, and input when accumulating
std::string WholeGradName(const std::string& group);  // of a group of which GradName is a slice
std::string ParamName(const std::string& group);      // of a group's flat parameters
std::string ColumnsName(const std::string& weight);   // of the columns of a divided weight that a rank keeps
std::string MomentName(std::string_view state, const std::string& unit);  // of a group or parameter
inline constexpr char kStatistics[] = "$statistics";                      // flat tensor of all running statistics
inline constexpr char kPending[] = "$pending";                            // flat tensor of those not committed yet

inline constexpr char kAverage[] = "average";  // moving average of the weights, a state for MomentName
// Do nodes with this source belong to the update (not to model, loss or gradients)?
bool IsUpdateSource(std::string_view source);

// A value whose gradient a feed of its type gets.
struct SeededValue {
  ValueId value;
  std::string feed;
};

struct MicroOptions {
  bool first = true;             // write pending sums; else accumulate into them
  bool apart = false;            // gradients are never accumulated
  bool outputs = false;          // output the model's outputs, too
  bool scaled = false;           // multiply gradients by kLossScale
  bool input_gradients = false;  // output those of the model's float inputs, too, as GradName
  // Of one stage of a pipeline.
  bool loss = true;                         // attach the loss
  std::vector<std::string> gradient_feeds;  // output the gradients of these feeds, too, as GradName
  std::vector<SeededValue> seeds;           // values whose gradients are fed
};

// `model` must have been imported for training, with trained weights of kind kParameter. The graph outputs the
// gradients, kBatchLoss per term, kBatchCorrect and the state updates (named as in model.state_updates). Without
// `first`, each goes `into` an input of the same name.
absl::StatusOr<Graph> BuildMicro(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                 int64_t batch, const MicroOptions& options);

// Adds the losses to kBatchLoss and kBatchCorrect, in the mode that `model` was imported for. Outputs the tensors of
// the metrics.
absl::StatusOr<Graph> BuildEval(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                int64_t batch, const std::vector<Metric>& metrics);

// Outputs the model's outputs, those that the file declares as float16 or bfloat16 rounded to that type.
Graph BuildPredict(const ImportedModel& model);

// One flat tensor of parameters with the same UpdateRule, and those of its gradients and moments (ParamName, GradName,
// MomentName). Per-tensor rules read and write the members instead, under the names of BuildStep.
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
  size_t losses = 1;  // loss terms
  std::optional<LossScaleSpec> loss_scale;
};

// `state_elements`: elements of kStatistics and kPending; 0: the model has no statistics. Where `groups` are slices
// that one of several ranks updates, `whole` has the groups, of whose gradients (WholeGradName) the norm is, or
// `has_norm` is set: kSquaredNorm has it. The rule must not be per tensor then.
absl::StatusOr<Graph> BuildApply(const UpdateSpec& spec, const std::vector<FlatGroup>& groups, int64_t state_elements,
                                 const std::vector<FlatGroup>& whole = {}, bool has_norm = false);
// Outputs kSquaredNorm of the groups' gradients.
Graph BuildSquaredNorm(DType dtype, const std::vector<FlatGroup>& groups);
// Does an update read whole weights, not just single elements?
bool IsPerTensor(const OptimizerSpec& optimizer);

// Exchanges the groups' weights with their averages.
Graph BuildSwap(DType dtype, const std::vector<FlatGroup>& groups);

// --- Graphs that other runtimes run. They count the targets of the batch by themselves and output "loss", its mean.

// Outputs besides: the gradient of every trained weight, and of float inputs if asked for, as NAME_grad; the model's
// outputs.
absl::StatusOr<Graph> BuildGradientGraph(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                         int64_t batch, bool input_gradients);

inline constexpr char kRateFeed[] = "$learning_rate";  // scalar
inline constexpr char kStep[] = "$step";               // i64: updates applied before

// Outputs besides: weights, moments, statistics and kStep after the update, and $grad_norm. Moments are named as in
// BuildStep. A batch whose gradient is not finite changes statistics alone. Reads neither `schedule` nor `loss_scale`.
absl::StatusOr<Graph> BuildUpdateGraph(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                       int64_t batch, const UpdateSpec& spec,
                                       const std::map<std::string, UpdateRule>& rules);

// --- Programs of a session again.

// Runs the rule on each parameter; moments are inputs MomentName(STATE, PARAMETER).
absl::StatusOr<Graph> BuildStep(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                int64_t batch, const UpdateSpec& spec, const std::map<std::string, UpdateRule>& rules);

}  // namespace onnxtrain
