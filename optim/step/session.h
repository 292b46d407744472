// The C++ interface of a training run: owns parameters, gradients, optimizer state and statistics in flat arenas,
// compiles programs per batch size as needed, and runs steps.
//
//   auto model = OnnxModel::Load("x.onnx");
//   auto backend = CreateBackend("cpu", {});
//   auto session = Session::Create(*model, backend->get(), options);
//   for (...) (*session)->Step({{"input", images}, {kLabelFeed, labels}});
//   auto metrics = (*session)->Report();
//
// Thread-compatible: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/data/load/sample_order.h"
#include "frontend/onnx/import.h"
#include "optim/config/optimizer.h"
#include "optim/loop/metrics.h"
#include "optim/memory/policy.h"
#include "optim/step/global_batch.h"
#include "optim/step/gradient_scaling.h"
#include "optim/step/loss.h"
#include "optim/step/prepared_models.h"
#include "optim/step/state.h"
#include "optim/step/trainable.h"

namespace onnxtrain {

// Memory of a training session by purpose, in bytes: allocated, or only planned with SessionOptions::plan_only.
struct SessionMemory {
  int64_t parameters = 0;  // trained and frozen, without `mapped`
  int64_t gradients = 0;   // flat arenas; gradients of a one-program step are activations
  int64_t sums = 0;        // partial sums of GradientTree, with SessionOptions::deterministic
  int64_t moments = 0;
  int64_t statistics = 0;   // running and pending statistics, device scalars
  int64_t packed = 0;       // values derived from weights
  int64_t feeds = 0;        // feeds and outputs of the program with the largest ones
  int64_t activations = 0;  // the arena of all programs, with workspaces, or `compiling`
  int64_t host = 0;         // the model, memory of the caller, libraries

  // Frozen weights that programs read from the mapped file. Not in the total: the system drops these pages where other
  // memory is needed, and reads them again.
  int64_t mapped = 0;
  // Activations and gradients that the program with most of them keeps in a file for a while (RecomputeSpec::offload).
  // Not in the total.
  int64_t offloaded = 0;

  int64_t compiling = 0;  // part of `activations`: memory that compilation needs while no program runs
  int64_t reserved = 0;   // part of the total: RecomputeSpec::reserved

  int64_t total() const {
    return parameters + gradients + sums + moments + statistics + packed + feeds + activations + host;
  }
};

class DataParallel;
enum class ShardLevel : uint8_t;  // optim/parallel/shard.h
class Trace;

// Selects how a global batch of one micro-batch is run: as one program, whose gradients live in the activation arena,
// or as the programs micro and apply. kAuto selects one program if the mean parameter is large; for many small
// parameters the passes over flat groups are faster.
enum class StepForm : uint8_t { kAuto, kOneProgram, kMicroAndApply };

// An input whose extents vary between batches, from `axis` on. Axis 0 is the batch.
struct VariableInput {
  std::string name;
  int axis = 1;
};
using VariableExtents = std::array<int64_t, 2>;  // unused entries are 0

// Identifies the part of a model that a session computes if several ranks share the model: a pipeline stage
// (optim/parallel/pipeline) or a slice of every weight (optim/parallel/tensor).
struct ModelPart {
  int index = 0, count = 1;

  bool on() const { return count > 1; }
};

struct SessionOptions {
  ImportOptions import;  // batch and training are set by the session; an extent of -1 in input_shapes is the batch
  LossSpec loss;
  LabelInfo labels;
  std::vector<std::string> metrics;  // evaluated in addition to the loss: see metrics.h
  // Inputs with extents that differ between batches. `import.input_shapes` and `labels` have the largest extents, for
  // which memory is planned. Programs are compiled for the extents of a batch when these first occur.
  std::vector<VariableInput> variable_inputs;
  int64_t variable_sizes = 1;    // number of different extents that batches will have, as far as known
  size_t variable_extents = 1;   // adjacent axes that vary: 1 for the length of text, 2 for height and width of images
  int variable_label_axis = -1;  // first variable axis in a sample of the labels; -1: the labels do not vary
  TrainableSpec trainable;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  int64_t micro_batch = 32;  // samples per run of the micro programs
  // With variable inputs: limits the samples of a micro-batch by their length; `micro_batch` is the number of samples
  // of the greatest length.
  TokenBudget tokens;
  bool may_freeze_batch_norm = false;  // allowed where batches have no or poor statistics
  int64_t fixed_batch = 0;             // the only micro-batch size with which the model runs; 0: any
  uint64_t seed = 42;
  DType compute = DType::kFloat32;          // kBFloat16 or kFloat16: mixed precision; all state stays float32
  std::optional<LossScaleSpec> loss_scale;  // with kFloat16
  StepForm step_form = StepForm::kAuto;
  // Gives every rank whole micro-batches and sums these in an order that does not depend on the number of ranks
  // (optim/parallel/gradient_tree.h), so that any number of ranks computes the same bits. An update fails if memory
  // runs out. CPU only.
  bool deterministic = false;
  // Computes the statistics of training batch normalization over the concurrent micro-batches of all ranks.
  bool sync_batch_norm = false;
  bool time_nodes = false;  // measures the time of every node, for Profile
  RecomputeSpec recompute;
  // Bytes that the caller uses (batches, data in memory), fixed and per sample of a micro-batch; they count against the
  // memory budget.
  int64_t caller_bytes = 0, caller_bytes_per_sample = 0;
  // Sample counts for which Plan compiles programs besides those of a full global batch: the short batch at the end of
  // an epoch, an evaluation, and one call of Predict; 0: none.
  int64_t last_batch = 0, evaluated_samples = 0, predicted_samples = 0;
  bool plan_only = false;  // allocates no memory: Plan and memory() work, nothing can be run
  int ranks = 1;           // processes that train together; each has the communication library in memory
  // With `plan_only`: plans for rank 0 of `plan_ranks`, as after Distribute with `plan_shard`.
  int plan_ranks = 1;
  ShardLevel plan_shard = {};
  // Makes the session one stage of a pipeline. Predict, Gradients, VisitGradients, TrainingLoss and Accumulate then
  // fail; all ranks call every other function that runs programs together, after Distribute.
  ModelPart pipeline;
  ModelPart tensor;  // makes the session one rank of a tensor-parallel group, with the same restrictions

  bool communicates() const { return plan_ranks > 1 || ranks > 1 || pipeline.on() || tensor.on(); }
};

inline PrepareOptions MakePrepareOptions(const SessionOptions& options) {
  return {options.import, options.loss, options.labels, options.trainable};
}

struct StepReport {          // summary of the updates since the last report
  int64_t updates = 0;       // attempted
  int64_t skipped = 0;       // of these, skipped because of a non-finite gradient
  double loss = 0;           // mean over all targets
  double grad_norm = 0;      // of the last update, before clipping
  double learning_rate = 0;  // of the last update
  double weight = 0;         // denominator of the leading loss term
  double correct = 0;        // correct predictions, of a loss that counts them
  double targets = 0;        // predictions: `weight` without class weights
  double loss_scale = 0;     // after the last update; 0: not scaled
};

// Values of one update; NaN if it was skipped.
struct UpdateValues {
  double loss = 0, grad_norm = 0;  // mean over its targets; before clipping
};

struct Evaluation {
  std::vector<double> loss_sums, weights;     // by loss term
  double correct = 0, targets = 0;            // of the leading term: correct predictions, and all
  MetricSums metrics;                         // only from Evaluate
  std::map<std::string, HostTensor> outputs;  // by model output name, [n, …]; only from Predict and Gradients
};

inline double MeanLoss(const LossChoice& loss, const Evaluation& e) { return MeanLoss(loss, e.loss_sums, e.weights); }

struct GradientResult {
  double loss = 0;
  std::map<std::string, HostTensor> outputs;
  std::map<std::string, HostTensor> gradients;        // by parameter name
  std::map<std::string, HostTensor> input_gradients;  // by name of the float inputs, [n, …]; only where asked for
};

enum class GradientsOf : uint8_t { kWeights, kWeightsAndInputs };

using GradientVisitor = std::function<void(const std::string& parameter, const HostTensor& gradient)>;

struct SessionCounters {
  int64_t attempted = 0;  // updates
  int64_t reported_attempts = 0, reported_skips = 0;
  int64_t skipped_in_a_row = 0;
  int64_t micro_batch = 0, oom_retries = 0;
};

// A compiled program and its runs.
struct ProgramProfile {
  std::string name;                  // micro_first, micro_next, step, apply, derive, …
  int64_t samples = 0;               // 0 for apply and derive
  VariableExtents extents = {};      // of variable inputs
  const Program* program = nullptr;  // owned by the session
  int64_t runs = 0;
  int64_t repeated = 0;    // rematerialized nodes
  double extra_share = 0;  // share of the run's time spent on them, by the cost model
};

class Session {
 public:
  // Creates a session that trains a model of `models`. `backend` must outlive it. Other sessions may share `models`,
  // which all calls that compile use. Fails on unsupported operators, naming all of them, on an ambiguous loss, and on
  // a glob that matches nothing.
  static absl::StatusOr<std::unique_ptr<Session>> Create(std::shared_ptr<PreparedModels> models, Backend* backend,
                                                         SessionOptions options);
  // Creates a session that shares its models with no other.
  static absl::StatusOr<std::unique_ptr<Session>> Create(std::shared_ptr<const OnnxModel> model, Backend* backend,
                                                         SessionOptions options) {
    return Create(std::make_shared<PreparedModels>(std::move(model)), backend, std::move(options));
  }
  virtual ~Session() = default;

  virtual const LossChoice& loss() const = 0;
  virtual const std::vector<Metric>& metrics() const = 0;
  virtual const std::vector<WeightDecision>& weights() const = 0;
  virtual const std::vector<std::string>& notes() const = 0;
  virtual int64_t micro_batch() const = 0;  // samples
  // Returns SessionOptions::tokens, reduced if memory has run out.
  virtual const TokenBudget& tokens() const = 0;
  // Returns SessionOptions::fixed_batch, or the size that Create found by running a model that does not scale with the
  // batch.
  virtual int64_t fixed_batch() const = 0;
  virtual int64_t steps() const = 0;         // updates attempted so far
  virtual SessionMemory memory() const = 0;  // with all programs compiled so far
  int64_t planned_peak_bytes() const { return memory().total(); }
  // Returns how often the micro-batch was halved because memory ran out.
  virtual int64_t oom_retries() const = 0;

  // Returns the programs with their runs; the pointers are valid until the next call that compiles.
  virtual std::vector<ProgramProfile> Profile() const = 0;

  virtual double compile_seconds() const = 0;  // time spent on compiling programs so far

  // Makes this session one of several ranks. All ranks have the same state and call Step with the same global batches;
  // each computes its share of a batch, and all apply the same update. `ranks` must outlive the session and sum
  // ExchangedSums() numbers. Afterwards Accumulate fails, and every function except Step concerns this rank alone.
  // Allocates gradients. With a `shard` above kNone (see ShardLevel), each rank keeps the moments of a share of the
  // weights, updates that share and sends it to the others; fails for update rules that read whole weights and for
  // averages. The state can then no longer be restored, and a kUnavailable error of Step may leave some weights
  // updated.
  virtual absl::Status Distribute(DataParallel* ranks, ShardLevel shard) = 0;
  virtual bool divides_moments() const = 0;
  // Returns true if this rank holds a part of the weights only. Then divides_moments() is true as well, and GatherState
  // also gathers the weights: Weights() of rank 0 returns all of them until the next Step.
  virtual bool holds_partial_weights() const { return false; }
  // Gathers divided moments on rank 0, whose State() has them until ReleaseGathered. All ranks call it between the same
  // updates. Does nothing if moments are not divided.
  virtual absl::Status GatherState() = 0;
  virtual void ReleaseGathered() = 0;
  // Returns how many numbers the ranks sum in a step.
  virtual size_t ExchangedSums() const = 0;

  // Compiles the programs for updates over `samples` samples, and for last_batch, evaluated_samples and
  // predicted_samples of the options, without running them.
  virtual absl::Status Plan(int64_t samples) = 0;
  // Drops all programs, so that those of a check before the first update take no memory during training.
  virtual void DropPrograms() = 0;

  // Runs one update; accumulates over micro-batches if the batch is larger than micro_batch(). Returns when the update
  // has finished on a CPU, or is queued on an asynchronous device. If memory runs out, discards the pending
  // micro-batches, halves the micro-batch permanently and repeats the update. Reads the batch only during the call.
  virtual absl::Status Step(const GlobalBatch& global_batch) = 0;
  // Adds the gradient of the batch's mean loss to the gradients accumulated since the last update. A failure discards
  // the accumulated gradients, and so does every other call that runs programs, except Predict.
  virtual absl::Status Accumulate(const GlobalBatch& global_batch) = 0;
  // Applies one update with the accumulated gradients; fails if there are none.
  virtual absl::Status Apply() = 0;
  // Returns how many of the latest updates in a row were skipped for a non-finite gradient. On an asynchronous device
  // the number may be up to ten updates old.
  virtual absl::StatusOr<int64_t> SkippedInARow() = 0;
  // Returns the values of the last update; must be called after every update. nullopt on an asynchronous device, where
  // it would have to wait.
  virtual absl::StatusOr<std::optional<UpdateValues>> LastUpdate() = 0;
  // Describes where the gradient of the batch becomes infinite or NaN (finite_check.h); "" if it is finite. Allocates
  // memory that no plan includes.
  virtual absl::StatusOr<std::string> FindNonFinite(const GlobalBatch& global_batch) = 0;
  // Reads and resets the device's sums; waits for queued work.
  virtual absl::StatusOr<StepReport> Report() = 0;

  // Returns losses and metrics of any number of samples, in inference mode, run in micro-batches.
  virtual absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch) = 0;
  // Returns the model's outputs for any number of samples, in inference mode; needs no labels.
  virtual absl::StatusOr<Evaluation> Predict(const GlobalBatch& global_batch) = 0;
  // Returns loss, outputs and all gradients in training mode, without an update.
  virtual absl::StatusOr<GradientResult> Gradients(const GlobalBatch& global_batch, GradientsOf of) = 0;
  // Passes the gradient of each trained weight to `visit`, in training mode and without an update: the gradient that
  // the next Step with this batch computes, before clipping.
  virtual absl::Status VisitGradients(const GlobalBatch& global_batch, const GradientVisitor& visit) = 0;
  // Returns the loss that Gradients returns, up to rounding, without a backward pass.
  virtual absl::StatusOr<double> TrainingLoss(const GlobalBatch& global_batch) = 0;

  // Records the following program runs, node by node, in *trace, which must outlive the recording; null ends it.
  virtual void SetTrace(Trace* trace) = 0;

  // Sets the learning rate factor of the plateau schedule, or of any schedule with ScheduleSpec::host_factor.
  virtual absl::Status SetPlateau(double factor) = 0;

  // Returns the device memory of all weights that programs read so far, and of the rest of the state. The regions stay
  // valid for the lifetime of the session, unless holds_partial_weights().
  virtual const Bindings& regions() const = 0;
  // Returns trained parameters and statistics by initializer name, in the stored shapes: the input of Export.
  virtual absl::StatusOr<std::map<std::string, HostTensor>> Weights() = 0;
  // With a weight average (KeepsAverage), UseAverage(true) swaps it with the weights for Evaluate, Predict and
  // Weights. UseAverage(false) restores the weights, and must precede the next Step.
  virtual bool has_average() const = 0;
  virtual absl::Status UseAverage(bool use) = 0;
  virtual absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) = 0;

  // Returns the tensors of a checkpoint; waits for queued work. Moments that are divided among ranks and not gathered
  // have no buffer. The other regions are valid for the lifetime of the session and change with its next update. Must
  // not be called while UseAverage(true) is in effect.
  virtual absl::StatusOr<std::vector<StateTensor>> State() = 0;
  virtual SessionCounters counters() const = 0;
  // Continues from the State() of another session with the same model and options. `state` must have exactly the
  // tensors of State(), by name.
  virtual absl::Status Restore(const std::map<std::string, HostTensor>& state, const SessionCounters& counters) = 0;
  // Completes a restore for which the caller has written the regions of State().
  virtual absl::Status RestoreCounters(const SessionCounters& counters) = 0;

  // Returns the parts of State() that this rank writes to a checkpoint, named by PartName (state.h). Every element is
  // in the part of exactly one rank. Only for divided moments.
  virtual absl::StatusOr<std::vector<StateTensor>> StateParts() = 0;
  // Gathers only the weights, like GatherState: Weights() of rank 0 returns all of them until the next Step.
  virtual absl::Status GatherWeights() = 0;
};

// Returns the greatest extents of the first variable input, from SessionOptions::import; zeros if no input varies.
VariableExtents GreatestExtents(const SessionOptions& options);
// Returns the extents of a part of a batch; the greatest extents if the part lacks the first variable input.
VariableExtents FindExtents(const SessionOptions& options, const GlobalBatch& part);
// Returns the options for preparing the model with these extents.
PrepareOptions PrepareAt(const SessionOptions& options, const VariableExtents& extents);

}  // namespace onnxtrain
