// Builds the graphs of a session's programs from model, loss and update rule. Pure graph building: no memory, no
// device.
//
//   micro   forward, loss and backward of one micro-batch. The first micro-batch of a global batch writes pending
//           gradients, losses and statistics, the next ones accumulate into them.
//   apply   finite check, global norm, clipping, schedule and update; commits pending statistics. If a gradient is not
//           finite, parameters, moments and counters keep their values and `skipped` is incremented.
//   step    micro and apply in one, for global batches of one micro-batch: gradients live in the activation arena until
//           their update, and nothing is pending. With OptimizerSpec::in_backward, weights are updated during the
//           backward pass, so that few gradients are in memory at a time.
//   norm    the norm of the gradient alone, before such a step, where the update depends on the norm.
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
#include "optim/step/gradient_scaling.h"
#include "optim/step/groups.h"
#include "optim/step/loss.h"

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
inline constexpr char kSquaredNorm[] = "$squared_norm";    // f64: of the gradient, where another program computes it
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
// Returns true if nodes with this source belong to the update and not to model, loss or gradients.
bool IsUpdateSource(std::string_view source);

// A value whose gradient is fed instead of computed, by a feed of its type.
struct SeededValue {
  ValueId value;
  std::string feed;
};

struct MicroOptions {
  bool first = true;             // overwrite pending sums; else accumulate into them
  bool accumulate = true;        // without `first`, accumulate gradients into inputs; false: output them separately
  bool outputs = false;          // also output the model's outputs
  bool scaled = false;           // multiply gradients by kLossScale
  bool input_gradients = false;  // also output the gradients of the model's float inputs, as GradName
  // Options for one stage of a pipeline.
  bool loss = true;                         // attach the loss
  std::vector<std::string> gradient_feeds;  // also output the gradients of these feeds, as GradName
  std::vector<SeededValue> seeds;           // values whose gradients are fed
};

// Builds forward pass, loss and backward pass of one micro-batch. `model` must have been imported for training, with
// trained weights of kind kParameter. The graph outputs the gradients, kBatchLoss per term, kBatchCorrect and the state
// updates (named as in model.state_updates). Without `first`, each is accumulated into an input of the same name.
absl::StatusOr<Graph> BuildMicro(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                 int64_t batch, const MicroOptions& options);

// Builds a graph that adds the losses to kBatchLoss and kBatchCorrect, in the mode for which `model` was imported, and
// outputs the tensors of the metrics.
absl::StatusOr<Graph> BuildEval(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                int64_t batch, const std::vector<Metric>& metrics);

// Builds a graph that outputs the model's outputs. Outputs declared as float16 or bfloat16 are rounded to that type.
Graph BuildPredict(const ImportedModel& model);

// A flat tensor of parameters that share an UpdateRule, with flat tensors of their gradients and moments (ParamName,
// GradName, MomentName). Per-tensor rules read and write the members instead, with the names of BuildStep.
struct FlatGroup {
  std::string name;
  int64_t elements = 0;
  UpdateRule rule;
  std::vector<std::pair<std::string, Shape>> members;
  // The group is a part of this weight, in whole blocks of a rule in blocks. "": it is none.
  std::string weight = {};
  Shape weight_shape = {};
};

struct UpdateSpec {
  DType dtype = DType::kFloat32;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  size_t losses = 1;  // loss terms
  std::optional<LossScaleSpec> loss_scale;
};

// Builds the update of the groups. `state_elements` is the size of kStatistics and kPending; 0 if the model has no
// running statistics. If `groups` are the slices that one of several ranks updates, the norm is computed from the
// gradients (WholeGradName) of the groups in `whole`, or read from kSquaredNorm if `has_norm` is set; if the rule is
// per tensor, they must then be parts of weights.
absl::StatusOr<Graph> BuildApply(const UpdateSpec& spec, const std::vector<FlatGroup>& groups, int64_t state_elements,
                                 const std::vector<FlatGroup>& whole = {}, bool has_norm = false);
// Builds a graph that outputs kSquaredNorm, the squared norm of the groups' gradients.
Graph BuildSquaredNorm(DType dtype, const std::vector<FlatGroup>& groups);
// Returns true if weights are updated one by one, not as flat groups.
bool IsPerTensor(const OptimizerSpec& optimizer);
// Returns true if updates compute blocks of a weight separately, and weights one by one.
bool UpdatesBlocks(const OptimizerSpec& optimizer);
// Returns the option because of which updates read whole weights, for messages; "" if they need not.
std::string WholeWeightReader(const OptimizerSpec& optimizer);

// Builds a graph that swaps the groups' weights with their averages.
Graph BuildSwap(DType dtype, const std::vector<FlatGroup>& groups);

// Builds a graph for other runtimes, which counts the targets of the batch itself. Outputs "loss" (the mean), the
// gradient of every trained weight, and of float inputs if requested, as NAME_grad, and the model's outputs.
absl::StatusOr<Graph> BuildGradientGraph(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                         int64_t batch, bool input_gradients);

inline constexpr char kRateFeed[] = "$learning_rate";  // scalar
inline constexpr char kStep[] = "$step";               // i64: updates applied before

// Builds a graph for other runtimes that outputs "loss", $grad_norm, and weights, moments, statistics and kStep after
// an update. Moments are named as in BuildStep. A batch with a non-finite gradient changes only statistics. Ignores
// `schedule` and `loss_scale`.
absl::StatusOr<Graph> BuildUpdateGraph(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                       int64_t batch, const UpdateSpec& spec,
                                       const std::map<std::string, UpdateRule>& rules);

// Returns true if an update with in_backward depends on the norm of the whole gradient: a norm program runs first.
// Otherwise a weight keeps its value if its own gradient is not finite, and the update counts as skipped.
bool NeedsNormFirst(const OptimizerSpec& optimizer, bool scaled_loss);

// Builds a graph that outputs kSquaredNorm, for a step that NeedsNormFirst.
absl::StatusOr<Graph> BuildNorm(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                int64_t batch, const UpdateSpec& spec);

// Builds micro and apply in one graph, which runs the rule on each parameter; moments are inputs
// MomentName(STATE, PARAMETER).
absl::StatusOr<Graph> BuildStep(const ImportedModel& model, const LossChoice& choice, const LossSpec& loss,
                                int64_t batch, const UpdateSpec& spec, const std::map<std::string, UpdateRule>& rules);

}  // namespace onnxtrain
