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
#include "optim/step/loss.h"
#include "optim/step/loss_scale.h"
#include "optim/step/prepared_models.h"
#include "optim/step/state.h"
#include "optim/step/trainable.h"

namespace onnxtrain {

// Memory of a training session by purpose, in bytes.

// Allocated by a session, or planned by one that only plans.
struct SessionMemory {
  int64_t parameters = 0;  // trained and frozen
  int64_t gradients = 0;   // flat arenas; gradients of a one-program step are activations
  int64_t sums = 0;        // of micro-batches, in SessionOptions::deterministic
  int64_t moments = 0;
  int64_t statistics = 0;   // running and pending statistics, device scalars
  int64_t packed = 0;       // values derived from weights
  int64_t feeds = 0;        // feeds and outputs of the program with the largest ones
  int64_t activations = 0;  // the arena of all programs, with workspaces, or `compiling`
  int64_t host = 0;         // the model, memory of the caller, libraries

  int64_t compiling = 0;  // of activations, what compiling takes, while no program runs
  int64_t reserved = 0;   // of the total, as RecomputeSpec::reserved

  int64_t total() const {
    return parameters + gradients + sums + moments + statistics + packed + feeds + activations + host;
  }
};

class DataParallel;
enum class ShardLevel : uint8_t;  // optim/parallel/shard.h
class Trace;

// How a global batch of one micro-batch is run: as one program, whose gradients live in the activation arena, or as the
// programs micro and apply. kAuto: one program if the mean parameter is large; for many small parameters the passes
// over flat groups are faster.
enum class StepForm : uint8_t { kAuto, kOneProgram, kMicroAndApply };

// An input and the first of its axes (the batch is 0) whose extents vary.
struct VariableInput {
  std::string name;
  int axis = 1;
};
using VariableExtents = std::array<int64_t, 2>;  // zeros where they are not used

// The part of the model that a session computes, where several ranks share it: a stage (optim/parallel/pipeline) or
// a part of every weight (optim/parallel/tensor).
struct ModelPart {
  int index = 0, count = 1;

  bool on() const { return count > 1; }
};

struct SessionOptions {
  ImportOptions import;  // batch and training are set by the session; an extent of -1 in input_shapes is the batch
  LossSpec loss;
  LabelInfo labels;
  std::vector<std::string> metrics;  // evaluated besides the loss: see metrics.h
  // Inputs with extents that differ between batches: input_shapes and labels have the greatest ones, for which memory
  // is planned. Programs are compiled for the extents of a batch, when they are first used.
  std::vector<VariableInput> variable_inputs;
  int64_t variable_sizes = 1;    // how many extents batches will have, as far as that is known
  size_t variable_extents = 1;   // of each, one behind the other: the length of texts; height and width of pictures
  int variable_label_axis = -1;  // the first of them in a sample of the labels; -1: these do not have them
  TrainableSpec trainable;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  int64_t micro_batch = 32;  // samples per run of the micro programs
  // With variable inputs: the samples of a micro-batch by its length; micro_batch is that of the greatest one.
  TokenBudget tokens;
  bool may_freeze_batch_norm = false;  // where the model is bound to a batch of 1
  int64_t fixed_batch = 0;             // the model runs with micro-batches of this size only; 0: with any
  uint64_t seed = 42;
  DType compute = DType::kFloat32;          // kBFloat16 or kFloat16: mixed precision; all state stays float32
  std::optional<LossScaleSpec> loss_scale;  // with kFloat16
  StepForm step_form = StepForm::kAuto;
  // Sums micro-batches, of which ranks compute whole ones, in an order that does not depend on the number of ranks
  // (optim/parallel/gradient_tree.h): equal bits for any. Where memory runs out, an update fails. On a CPU only.
  bool deterministic = false;
  // Batch normalization in training: statistics of the micro-batches that all ranks compute at the same time.
  bool sync_batch_norm = false;
  bool time_nodes = false;  // measure the time of every node, for Profile
  RecomputeSpec recompute;
  // Memory of the caller (batches, data in memory), fixed and per sample of a micro-batch: counted against the budget.
  int64_t caller_bytes = 0, caller_bytes_per_sample = 0;
  // What the caller runs besides updates of whole global batches, for Plan: the short update that ends an epoch, the
  // samples of evaluations, and those of one Predict; 0: none.
  int64_t last_batch = 0, evaluated_samples = 0, predicted_samples = 0;
  bool plan_only = false;  // allocates no memory: Plan and memory() work, nothing can be run
  int ranks = 1;           // processes that train together, of which each has the library of communication in memory
  // Of a session that only plans: for the first of so many ranks, as Distribute has them.
  int plan_ranks = 1;
  ShardLevel plan_shard = {};
  // One stage of a pipeline: Predict, Gradients, VisitGradients, TrainingLoss and Accumulate fail, and everything else
  // that runs programs is called by all ranks together, after Distribute.
  ModelPart pipeline;
  ModelPart tensor;  // one rank of a tensor-parallel group: the same

  bool communicates() const { return plan_ranks > 1 || ranks > 1 || pipeline.on() || tensor.on(); }
};

inline PrepareOptions MakePrepareOptions(const SessionOptions& options) {
  return {options.import, options.loss, options.labels, options.trainable};
}

struct StepReport {          // over the updates since the last report
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

// Of one update; NaN where it has none.
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
  // `backend` must outlive the session. `models`, which other sessions may share, is used by all calls that compile.
  // Fails with every unsupported operator named, on an ambiguous loss, on a glob that matches nothing.
  static absl::StatusOr<std::unique_ptr<Session>> Create(std::shared_ptr<PreparedModels> models, Backend* backend,
                                                         SessionOptions options);
  // A session with models of its own.
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
  // As SessionOptions::tokens, after memory has run out with less of them.
  virtual const TokenBudget& tokens() const = 0;
  // As SessionOptions::fixed_batch. Create sets it where running the model shows that it does not follow the batch.
  virtual int64_t fixed_batch() const = 0;
  virtual int64_t steps() const = 0;         // updates attempted so far
  virtual SessionMemory memory() const = 0;  // with all programs compiled so far
  int64_t planned_peak_bytes() const { return memory().total(); }
  // Times that the micro-batch was halved because memory ran out.
  virtual int64_t oom_retries() const = 0;

  virtual std::vector<ProgramProfile> Profile() const = 0;  // valid until the next call that compiles

  virtual double compile_seconds() const = 0;  // spent on compiling programs so far

  // Makes this session one of several ranks, which all have the same state and call Step with the same global batches:
  // each computes its share, and all make the same update. `ranks` must outlive the session, and adds up ExchangedSums
  // numbers. Accumulate fails from then on; everything else but Step concerns this rank alone. Allocates gradients.
  // `shard`: see ShardLevel. With kOptimizer each rank keeps the moments of a share of the weights, updates these, and
  // sends them to the others; fails for rules that read whole weights, and with averages. The state can no longer be
  // restored, and an error of Step that is kUnavailable may have left some of the weights updated.
  virtual absl::Status Distribute(DataParallel* ranks, ShardLevel shard) = 0;
  virtual bool divides_moments() const = 0;
  // Does another rank hold other weights? Then divides_moments(), and GatherState gathers the weights too: Weights() of
  // rank 0 has all until the next Step.
  virtual bool holds_partial_weights() const { return false; }
  // Called by all ranks between the same updates: State of rank 0 holds whole moments until ReleaseGathered, which
  // keeps memory for them. Does nothing where they are not divided.
  virtual absl::Status GatherState() = 0;
  virtual void ReleaseGathered() = 0;
  // The numbers that ranks exchange in a step.
  virtual size_t ExchangedSums() const = 0;

  // Compiles the programs for updates over `samples` samples, and for what the options say of the caller, without
  // running them.
  virtual absl::Status Plan(int64_t samples) = 0;
  // Drops all programs: those that a check before the first update has used must not take memory while training.
  virtual void DropPrograms() = 0;

  // Runs one update; accumulates over micro-batches where the batch is larger than micro_batch(). Returns when it has
  // finished on a CPU, and when it is queued on a device. If memory runs out, discards the pending micro-batches,
  // halves the micro-batch for good and repeats the update. Reads the tensors of the batch only during the call.
  virtual absl::Status Step(const GlobalBatch& global_batch) = 0;
  // Adds the gradient of the batch's mean loss to what was accumulated since the last update. A failure discards all of
  // it, and so does every other call that runs programs but Predict.
  virtual absl::Status Accumulate(const GlobalBatch& global_batch) = 0;
  // Makes one update with what was accumulated; fails where that is nothing.
  virtual absl::Status Apply() = 0;
  // Returns how many updates in a row, up to the last one, were skipped for a non-finite gradient. On an asynchronous
  // device the answer may be ten updates old.
  virtual absl::StatusOr<int64_t> SkippedInARow() = 0;
  // Returns the values of the last update since the one before. Call it after every update; nullopt on an asynchronous
  // device, where it would have to wait.
  virtual absl::StatusOr<std::optional<UpdateValues>> LastUpdate() = 0;
  // Says where the gradient of the batch becomes infinite or not a number (finite_check.h); "" where it does not. Takes
  // memory that no plan counts.
  virtual absl::StatusOr<std::string> FindNonFinite(const GlobalBatch& global_batch) = 0;
  // Reads and resets the device's sums; waits for queued work.
  virtual absl::StatusOr<StepReport> Report() = 0;

  // Run in inference mode, in micro-batches, on any number of samples.
  virtual absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch) = 0;
  virtual absl::StatusOr<Evaluation> Predict(const GlobalBatch& global_batch) = 0;  // needs no labels
  // Returns loss, outputs and all gradients in training mode, without an update.
  virtual absl::StatusOr<GradientResult> Gradients(const GlobalBatch& global_batch, GradientsOf of) = 0;
  // Passes each trained weight's gradient to `visit`, in training mode and without an update: those that the next Step
  // with this batch will have, before clipping.
  virtual absl::Status VisitGradients(const GlobalBatch& global_batch, const GradientVisitor& visit) = 0;
  // Returns the loss of Gradients, up to rounding, without a backward pass.
  virtual absl::StatusOr<double> TrainingLoss(const GlobalBatch& global_batch) = 0;

  // Records the following runs of programs, node by node, in *trace, which must outlive the recording; null ends it.
  virtual void SetTrace(Trace* trace) = 0;

  // Sets the factor of the learning rate under the schedule plateau, or under any with ScheduleSpec::host_factor.
  virtual absl::Status SetPlateau(double factor) = 0;

  // Returns trained parameters and statistics by initializer name, in the stored shapes: the input of Export.
  virtual absl::StatusOr<std::map<std::string, HostTensor>> Weights() = 0;
  // With a weight average (ema_decay), UseAverage(true) exchanges it with the weights for Evaluate, Predict and
  // Weights. UseAverage(false) restores the weights, and must precede the next Step.
  virtual bool has_average() const = 0;
  virtual absl::Status UseAverage(bool use) = 0;
  virtual absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) = 0;

  // Returns what a checkpoint holds; waits for queued work. Moments that are divided among ranks and not gathered have
  // no buffer. The others stay where they are as long as the session lives, and change with its next update. Not while
  // the weights are exchanged with their average.
  virtual absl::StatusOr<std::vector<StateTensor>> State() = 0;
  virtual SessionCounters counters() const = 0;
  // Continues from another session's State(), of the same model and options: every tensor of it by name, and no other.
  virtual absl::Status Restore(const std::map<std::string, HostTensor>& state, const SessionCounters& counters) = 0;
  // The same once the regions of State() have been written.
  virtual absl::Status RestoreCounters(const SessionCounters& counters) = 0;

  // Returns what this rank writes of a checkpoint where the moments are divided: parts of the tensors of State(), named
  // by PartName (state.h). Every element is in the part of one rank. Not elsewhere.
  virtual absl::StatusOr<std::vector<StateTensor>> StateParts() = 0;
  // As GatherState, of the weights alone: Weights() of rank 0 has all until the next Step.
  virtual absl::Status GatherWeights() = 0;
};

}  // namespace onnxtrain
