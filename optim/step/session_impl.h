// The state and the programs behind Session (session.h), which session.cc implements, with session_results.cc for
// evaluations and gradients, and session_memory.cc.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "frontend/ops/random.h"
#include "optim/step/batch_feeds.h"
#include "optim/step/device_scalars.h"
#include "optim/step/distribution.h"
#include "optim/step/global_batch.h"
#include "optim/step/prepared_models.h"
#include "optim/step/program/planning_backend.h"
#include "optim/step/program/programs.h"
#include "optim/step/rules/rule.h"
#include "optim/step/session.h"
#include "optim/step/training_graph.h"
#include "optim/step/training_state.h"

namespace onnxtrain {

// A program that is compiled for batches of `samples` samples.
struct CompiledBatchProgram {
  ProgramKind kind;
  int64_t samples;
  VariableExtents extents;
  std::unique_ptr<CompiledProgram> compiled;
  BatchFeeds feeds;
  int64_t last_use = 0;
  int64_t sent_bytes = -1;                    // bytes that its collective operators send; −1: not counted yet
  std::vector<const Region*> gradients = {};  // the memory of GradientReducer::taken_outputs, in their order
};

struct CompiledPrograms {
  std::vector<std::unique_ptr<CompiledBatchProgram>> ready;
  int64_t uses = 0;                              // of these, so far
  std::unique_ptr<CompiledProgram> apply, swap;  // null: not compiled yet
  SessionMemory most_memory;                     // since the size of a micro-batch has changed
  bool planning = false;                         // what a run needs all the time: no program is evicted for another one
  double prepare_seconds = 0;                    // of import and differentiation
};

// Micro-batches that Session::Accumulate has added since the last update.
struct PendingBatches {
  int64_t micros = 0;           // 0: nothing
  std::vector<double> weights;  // by term
  double targets = 0;
};

class SessionImpl : public Session {
 public:
  SessionImpl(std::shared_ptr<PreparedModels> models, Backend* backend, SessionOptions options)
      : models_(std::move(models)),
        planning_(*backend),
        backend_(options.plan_only ? planning_ : *backend),
        options_(std::move(options)),
        programs_(&backend_, options_.compute, options_.time_nodes, options_.recompute,
                  {.other_bytes = [this] { return BytesBesidePrograms(); },
                   .evict = [this] { return EvictProgram(); },
                   .may_evict = [this] { return !compiled_.planning; },
                   .compile_bytes = [this] { return on_host() ? static_cast<size_t>(CompileBytes()) : 0; },
                   .code_beside = [this](const CodeEstimate& code) { return CodeBeside(code); },
                   .seed = options_.seed,
                   .recompute_memo = &models_->recompute_memo()}),
        dtype_(options_.import.float_type),
        state_(backend_, dtype_),
        reducer_(std::make_unique<GradientReducer>(this)),
        shards_(std::make_unique<StateShards>()) {
    prepare_ = MakePrepareOptions(options_);
  }

  absl::Status Init();

  const LossChoice& loss() const override { return prepared_.loss; }
  const std::vector<Metric>& metrics() const override { return metrics_; }
  const std::vector<WeightDecision>& weights() const override { return prepared_.weights; }
  const std::vector<std::string>& notes() const override { return prepared_.model.notes; }
  int64_t micro_batch() const override { return options_.micro_batch; }
  const TokenBudget& tokens() const override { return options_.tokens; }
  int64_t fixed_batch() const override { return options_.fixed_batch; }
  int64_t steps() const override { return counters_.attempted; }
  SessionMemory memory() const override;
  int64_t oom_retries() const override { return counters_.oom_retries; }
  std::vector<ProgramProfile> Profile() const override;
  double compile_seconds() const override { return programs_.compile_seconds() + compiled_.prepare_seconds; }

  bool divides_moments() const override { return !state_.shard().whole(); }
  bool holds_partial_weights() const override { return state_.divides_weights(); }
  absl::Status GatherState() override;
  absl::Status GatherWeights() override { return shards_->GatherWeights(); }
  void ReleaseGathered() override { state_.ReleaseGathered(); }
  size_t ExchangedSums() const override { return prepared_.loss.terms.size() + 1; }
  absl::Status Plan(int64_t samples) override;
  void DropPrograms() override;
  absl::Status Step(const GlobalBatch& global_batch) override;
  absl::Status Accumulate(const GlobalBatch& global_batch) override;
  absl::Status Apply() override;
  absl::StatusOr<int64_t> SkippedInARow() override;
  absl::StatusOr<std::optional<UpdateValues>> LastUpdate() override;
  absl::StatusOr<std::string> FindNonFinite(const GlobalBatch& global_batch) override;
  absl::StatusOr<StepReport> Report() override;
  absl::StatusOr<Evaluation> Evaluate(const GlobalBatch& global_batch) override {
    return reducer_->Evaluate(global_batch);
  }
  absl::StatusOr<Evaluation> Predict(const GlobalBatch& global_batch) override;
  absl::StatusOr<GradientResult> Gradients(const GlobalBatch& global_batch, GradientsOf of) override;
  absl::Status VisitGradients(const GlobalBatch& global_batch, const GradientVisitor& visit) override;
  absl::StatusOr<double> TrainingLoss(const GlobalBatch& global_batch) override;
  const Bindings& regions() const override { return state_.bindings(); }
  absl::StatusOr<std::map<std::string, HostTensor>> Weights() override;
  void SetTrace(Trace* trace) override {
    trace_ = trace;
    programs_.SetTrace(trace);
  }
  absl::Status SetPlateau(double factor) override { return state_.device_scalars().plateau.Write(factor); }
  bool has_average() const override { return KeepsAverage(options_.optimizer); }
  absl::Status UseAverage(bool use) override;
  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) override;
  absl::StatusOr<std::vector<StateTensor>> State() override;
  absl::StatusOr<std::vector<StateTensor>> StateParts() override;
  SessionCounters counters() const override;
  absl::Status Restore(const std::map<std::string, HostTensor>& state, const SessionCounters& counters) override;
  absl::Status RestoreCounters(const SessionCounters& counters) override;

  // Functions that GradientReducer and StateShards use.
  const SessionOptions& options() const { return options_; }
  Backend& backend() { return backend_; }
  Programs& programs() { return programs_; }
  TrainingState& state() { return state_; }
  const Graph& graph() const { return prepared_.model.graph; }  // for training, at the micro-batch
  Trace* trace() const { return trace_; }
  const std::vector<std::unique_ptr<CompiledBatchProgram>>& ready_programs() const { return compiled_.ready; }
  // Writes the loss denominators of the batch to the device.
  absl::Status CountTargets(const GlobalBatch& global_batch, int64_t samples);
  // Cuts the batch into micros(), in the order of its samples.
  std::vector<MicroBatch>& CutMicros(const GlobalBatch& global_batch);
  std::vector<MicroBatch>& micros() { return micros_; }
  VariableExtents FindExtents(const GlobalBatch& part) const { return onnxtrain::FindExtents(options_, part); }
  absl::StatusOr<CompiledBatchProgram*> Get(ProgramKind kind, int64_t batch, const VariableExtents& extents);
  absl::Status FillFeeds(CompiledBatchProgram& program, const MicroBatch& micro, const RandomKey& key);
  RandomKey Key(int64_t micro, uint32_t piece = 0) const { return {options_.seed, counters_.attempted, micro, piece}; }
  // Returns the random key of a micro-batch, or of a piece of one, that follows `before` others.
  RandomKey PartKey(const MicroBatch& m, int64_t before = 0) const {
    return Key(before + m.number, MakePiece(m.skipped, m.count));
  }
  // Runs the micro-batches of the batch that the reducer keeps. `micro` is the number of the first one; if it is above
  // 0, the sums are added to the pending ones. Puts outputs of the kind into *fetched.
  absl::Status RunMicros(const GlobalBatch& global_batch, ProgramKind first, std::map<std::string, HostTensor>* fetched,
                         int64_t micro = 0);
  absl::StatusOr<CompiledBatchProgram*> RunMicro(ProgramKind kind, const MicroBatch& micro, const RandomKey& key);
  absl::StatusOr<Evaluation> EvaluateAs(ProgramKind kind, const GlobalBatch& global_batch);
  // Runs micros() in inference mode.
  absl::StatusOr<Evaluation> EvaluateMicros(ProgramKind kind, const GlobalBatch& global_batch, int64_t samples);
  absl::Status PlanMicros(int64_t samples);
  absl::Status EnsureApply();
  void DropMicroPrograms();

 protected:
  // Called by Init after the state is laid out and before the weights of the model's file are copied into it.
  virtual absl::Status ChooseStrategy() { return absl::OkStatus(); }
  // Overridden by sessions that compute a part of the model (optim/parallel).
  virtual absl::StatusOr<PreparedModel> PrepareTrained() {
    return models_->Prepare(prepare_, options_.micro_batch, true, !options_.plan_only);
  }
  virtual absl::StatusOr<PreparedModel> PrepareProgram(const PrepareOptions& options, int64_t batch, bool training,
                                                       bool values) {
    return models_->Prepare(options, batch, training, values);
  }
  virtual bool norm_is_given() const { return state_.divides_gradients(); }  // apply programs read kSquaredNorm
  virtual absl::Status CheckBatch();
  virtual Bindings ApplyBindings() const;

  absl::Status MoveWeightsIn();
  void ReleaseImported();
  virtual absl::Status EnsureFrozen(const ImportedModel& model, int64_t batch, bool training);
  absl::Status VerifyFrozenBatch(int64_t frozen);
  int64_t FindExportedBatch();
  absl::Status UseExportedBatch(int64_t exported);
  UpdateSpec MakeUpdateSpec() const {
    return {dtype_, options_.optimizer, options_.schedule, prepared_.loss.terms.size(), options_.loss_scale};
  }
  absl::Status EnsureSwap();
  // Returns the samples of a micro-batch that is padded to `length`.
  int64_t MicroSamples(int64_t length) const {
    return options_.tokens.on() ? options_.tokens.MicroSamples(length) : options_.micro_batch;
  }
  bool OneProgramStep(int64_t samples, int64_t length) const;
  // Returns the programs of an update that is one micro-batch, in their order.
  std::span<const ProgramKind> StepPrograms() const {
    static constexpr ProgramKind kAll[] = {ProgramKind::kNorm, ProgramKind::kStep};
    return std::span(kAll).subspan(NeedsNormFirst(options_.optimizer, options_.loss_scale.has_value()) ? 0 : 1);
  }
  bool on_host() const { return backend_.device() == "cpu"; }
  absl::StatusOr<CompiledBatchProgram*> Compile(ProgramKind kind, int64_t batch, const VariableExtents& extents);
  absl::StatusOr<CompiledBatchProgram*> AddProgram(ProgramKind kind, int64_t batch, const VariableExtents& extents);
  bool EvictProgram();
  size_t CodeBeside(const CodeEstimate& code) const;
  absl::StatusOr<Evaluation> PredictPadded(const GlobalBatch& global_batch, int64_t samples);
  absl::StatusOr<Graph> BuildGraph(ProgramKind kind, int64_t batch, const ImportedModel& model, const LossChoice& loss);
  absl::Status VisitPending(const GradientVisitor& visit);
  absl::StatusOr<double> ReadLossScale();
  absl::Status AddMetrics(const CompiledProgram& program, MetricSums* sums);
  absl::Status AddOutputs(const CompiledProgram& program, int64_t begin, int64_t count, int64_t total,
                          std::map<std::string, HostTensor>* outputs) const;
  size_t BytesBesidePrograms() const;
  int64_t PredictedBytes() const;
  int64_t CompileBytes() const;
  int64_t CodeToCome(int64_t planned) const;
  SessionMemory MemoryNow() const;
  absl::Status Update(const GlobalBatch& global_batch, int64_t samples);
  void HalveMicroBatch(int64_t samples, int64_t length);
  absl::Status RunStep(const GlobalBatch& global_batch, int64_t samples);
  absl::Status RunApply();
  absl::Status PlanPrograms(int64_t samples);
  absl::Status PlanInference();
  absl::Status AddPendingTargets(bool first);

  std::shared_ptr<PreparedModels> models_;
  PlanningBackend planning_;
  Backend& backend_;
  SessionOptions options_;
  PrepareOptions prepare_;
  PreparedModel prepared_;  // for training, at the micro-batch
  Programs programs_;
  DType dtype_;
  std::vector<Metric> metrics_;
  std::optional<LossDenominators> loss_denominators_;
  TrainingState state_;
  CompiledPrograms compiled_;
  std::vector<MicroBatch> micros_;  // memory for CutMicros
  bool averaged_ = false;           // the weights and their average are exchanged
  bool batch_verified_ = false;     // VerifyBatchSize has succeeded
  UpdateReader updates_;
  PendingBatches pending_;
  SessionCounters counters_;  // without what updates_ and options_ have
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<StateShards> shards_;
  Trace* trace_ = nullptr;
};

}  // namespace onnxtrain
