// The C++ face for programs that train inside themselves: owns parameters, gradients, moments and statistics in flat
// arenas, compiles programs for each input shape as needed, and runs steps.
//
//   auto model = OnnxModel::Load("x.onnx");
//   auto backend = CreateBackend("cpu", {});
//   auto session = Session::Create(*model, backend->get(), options);
//   for (...) (*session)->Step({.feeds = {{"input", images}}, .labels = labels});
//   auto metrics = (*session)->Report();
//
// Not thread-safe: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "frontend/onnx/import.h"
#include "optim/loss.h"
#include "optim/loss_scale.h"
#include "optim/metrics.h"
#include "optim/optimizer.h"
#include "optim/recompute_policy.h"
#include "optim/session_memory.h"
#include "optim/trainable.h"
#include "optim/window.h"

namespace onnxtrain {

// How a window of one micro-batch is run: as one program, whose gradients never leave the activation arena, or as micro and
// apply. kAuto: one program where parameters are large; for many small ones the passes over flat groups are faster.
enum class StepForm : uint8_t { kAuto, kOneProgram, kMicroAndApply };

struct SessionOptions {
  ImportOptions import;          // batch and training are set by the session; an extent of -1 in input_shapes is the batch
  LossSpec loss;
  LabelInfo labels;
  std::vector<std::string> metrics;  // that evaluations tell besides the loss: see metrics.h
  TrainableSpec trainable;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  int64_t micro_batch = 32;      // samples per run of the micro programs
  uint64_t seed = 42;
  DType compute = DType::kFloat32;  // of products: kBFloat16 or kFloat16 for mixed precision; all state stays float32
  std::optional<LossScaleSpec> loss_scale;  // for kFloat16
  StepForm step_form = StepForm::kAuto;
  bool time_nodes = false;       // programs measure the time of every node: for Profile
  RecomputeSpec recompute;
  // What the caller holds beside the session (batches, data in memory), and what comes to that for each sample of a micro-batch:
  // counts against the budget.
  int64_t caller_bytes = 0, caller_bytes_per_sample = 0;
  bool plan_only = false;        // no memory is allocated and nothing can be run: for Plan and Memory
};

struct StepReport {             // of the updates since the last report
  int64_t updates = 0;          // attempted
  int64_t skipped = 0;          // of them, not applied because of a non-finite gradient
  double loss = 0;              // mean over all targets
  double grad_norm = 0;         // of the last update, before clipping
  double learning_rate = 0;     // of the last update
  double weight = 0;            // targets of the leading loss
  double correct = 0;           // where the loss has classes
  double targets = 0;           // that `correct` is a part of: `weight`, but for class weights
  double loss_scale = 0;        // after the last update; 0: the loss is not scaled
};

struct Evaluation {
  std::vector<double> loss_sums, weights;     // of each loss term
  double correct = 0, targets = 0;            // of the leading term: predictions that hit, and how many there were
  MetricSums metrics;                         // only from Evaluate
  std::map<std::string, HostTensor> outputs;  // by model output name, [n, …]; only from Predict and Gradients
};

inline double MeanLoss(const LossChoice& loss, const Evaluation& e) { return MeanLoss(loss, e.loss_sums, e.weights); }

struct GradientResult {
  double loss = 0;
  std::map<std::string, HostTensor> outputs;
  std::map<std::string, HostTensor> gradients;  // by parameter name
};

// A program that the session has compiled, and how often it has run.
struct ProgramProfile {
  std::string name;         // micro_first, micro_next, step, apply, derive, …
  int64_t samples = 0;      // 0 for apply and derive
  const Program* program;   // owned by the session
  int64_t runs = 0;
  int64_t repeated = 0;     // nodes that run a second time instead of being kept
  double extra_share = 0;   // of the run's time, by the cost model, spent on them
};

class Session {
 public:
  // `backend` must outlive the session. Fails with every unsupported operator named, on an ambiguous loss, on a glob
  // that matches nothing.
  static absl::StatusOr<std::unique_ptr<Session>> Create(std::shared_ptr<const OnnxModel> model, Backend* backend,
                                                         SessionOptions options);
  virtual ~Session() = default;

  virtual const LossChoice& loss() const = 0;
  virtual const std::vector<Metric>& metrics() const = 0;
  virtual const std::vector<WeightDecision>& weights() const = 0;
  virtual const std::vector<std::string>& notes() const = 0;
  virtual int64_t micro_batch() const = 0;           // samples
  virtual int64_t steps() const = 0;                 // updates attempted so far
  virtual SessionMemory memory() const = 0;          // with the programs that are compiled by now
  int64_t planned_peak_bytes() const { return memory().total(); }
  // How often a window was repeated in smaller micro-batches because memory ran out.
  virtual int64_t oom_retries() const = 0;

  virtual std::vector<ProgramProfile> Profile() const = 0;  // valid until the next call that compiles

  virtual double compile_seconds() const = 0;        // spent on building programs so far
  // Spent on updates so far: on clipping, rules and counters. Below 0 on a device that works by itself, where the host
  // does not see it.
  virtual double optimizer_seconds() const = 0;

  // Compiles what updates of windows of so many samples run, without running it.
  virtual absl::Status Plan(int64_t samples) = 0;

  // One update; a window longer than micro_batch is accumulated. Returns as soon as it is queued on a device. Where memory runs out, what is pending is discarded and the same
  // window repeated in micro-batches of half the size, which stay.
  virtual absl::Status Step(const Window& window) = 0;
  // How many of the last updates were skipped for a gradient that was not finite. A device that works by itself is not
  // waited for each time: there the answer may be ten updates old.
  virtual absl::StatusOr<int64_t> SkippedInARow() = 0;
  // Reads the device's counters; waits for the queue. Resets the sums.
  virtual absl::StatusOr<StepReport> Report() = 0;

  // In inference mode, any number of samples (run in micro-batches).
  virtual absl::StatusOr<Evaluation> Evaluate(const Window& window) = 0;
  virtual absl::StatusOr<Evaluation> Predict(const Window& window) = 0;  // outputs; labels are not needed
  // Training mode without an update: the loss, outputs and every gradient of one window.
  virtual absl::StatusOr<GradientResult> Gradients(const Window& window) = 0;
  // The loss of Gradients, to rounding, without a backward pass.
  virtual absl::StatusOr<double> TrainingLoss(const Window& window) = 0;

  // The factor of the rate from now on, under the schedule plateau.
  virtual absl::Status SetPlateau(double factor) = 0;

  // Current parameters and state by initializer name, in the stored shapes: what Export takes.
  virtual absl::StatusOr<std::map<std::string, HostTensor>> Weights() = 0;
  // Does the optimizer keep an average of the weights? Then true puts it in their place, for Evaluate, Predict and Weights, and
  // false puts the trained ones back, which has to come before the next Step.
  virtual bool has_average() const = 0;
  virtual absl::Status UseAverage(bool use) = 0;
  virtual absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) = 0;
};

}  // namespace onnxtrain
