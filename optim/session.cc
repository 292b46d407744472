#include "optim/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/clip.h"
#include "optim/planning_backend.h"
#include "optim/prepare.h"
#include "optim/programs.h"
#include "optim/prove_batch.h"
#include "optim/rules/rule.h"
#include "optim/training_graph.h"
#include "optim/training_state.h"
#include "optim/window_feeds.h"

namespace onnxtrain {
namespace {

enum class ProgramKind : uint8_t { kMicroFirst, kMicroNext, kMicroOutputsFirst, kMicroOutputsNext, kStep, kTrainingLoss, kEval, kPredict };

constexpr const char* kProgramNames[] = {"micro_first", "micro_next", "micro_outputs_first", "micro_outputs_next", "step", "training_loss", "eval", "predict"};

bool IsMicro(ProgramKind kind) { return kind <= ProgramKind::kMicroOutputsNext; }
bool IsTraining(ProgramKind kind) { return kind <= ProgramKind::kTrainingLoss; }
bool IsFirst(ProgramKind kind) { return kind == ProgramKind::kMicroFirst || kind == ProgramKind::kMicroOutputsFirst; }
bool HasOutputs(ProgramKind kind) { return kind == ProgramKind::kMicroOutputsFirst || kind == ProgramKind::kMicroOutputsNext; }

// Puts the outputs of samples [begin, begin + count) of `total` in their place in *all, which the first call makes. An
// output without a batch axis is the same for every micro-batch: the last one stays.
void PlaceRows(HostTensor* all, const HostTensor& part, int64_t begin, int64_t count, int64_t total) {
  const bool batched = part.type().rank() > 0 && part.shape()[0] == count;
  if (!batched) {
    *all = part;
    return;
  }
  if (begin == 0) {
    Shape shape = part.shape();
    shape[0] = total;
    *all = HostTensor({part.dtype(), shape});
  }
  const size_t row = part.bytes().size() / count;
  if (part.size() > 0) std::memcpy(all->mutable_bytes().data() + begin * row, part.bytes().data(), count * row);
}

// Code and tables of libraries, stacks.
constexpr int64_t kProcessBytes = int64_t{12} << 20;

class SessionImpl : public Session {
 public:
  SessionImpl(std::shared_ptr<const OnnxModel> model, Backend* backend, SessionOptions options)
      : model_(std::move(model)), planning_(*backend), backend_(options.plan_only ? planning_ : *backend), options_(std::move(options)),
        programs_(&backend_, options_.compute, options_.time_nodes, options_.recompute, [this] { return BytesBesidePrograms(); }),
        dtype_(options_.import.float_type), state_(backend_, dtype_) {
    prepare_ = {options_.import, options_.loss, options_.labels, options_.trainable};
  }

  absl::Status Init();

  const LossChoice& loss() const override { return prepared_.loss; }
  const std::vector<Metric>& metrics() const override { return metrics_; }
  const std::vector<WeightDecision>& weights() const override { return prepared_.weights; }
  const std::vector<std::string>& notes() const override { return prepared_.model.notes; }
  int64_t micro_batch() const override { return options_.micro_batch; }
  int64_t steps() const override { return attempted_; }
  SessionMemory memory() const override;
  int64_t oom_retries() const override { return oom_retries_; }
  std::vector<ProgramProfile> Profile() const override;
  double compile_seconds() const override { return programs_.compile_seconds(); }
  double optimizer_seconds() const override;

  absl::Status Plan(int64_t samples) override;
  absl::Status Step(const Window& window) override;
  absl::StatusOr<int64_t> SkippedInARow() override;
  absl::StatusOr<StepReport> Report() override;
  absl::StatusOr<Evaluation> Evaluate(const Window& window) override { return Evaluate(ProgramKind::kEval, window); }
  absl::StatusOr<Evaluation> Predict(const Window& window) override;
  absl::StatusOr<GradientResult> Gradients(const Window& window) override;
  absl::StatusOr<double> TrainingLoss(const Window& window) override;
  absl::StatusOr<std::map<std::string, HostTensor>> Weights() override;
  absl::Status SetPlateau(double factor) override { return state_.slots().plateau.Write(factor); }
  bool has_average() const override { return options_.optimizer.ema_decay > 0; }
  absl::Status UseAverage(bool use) override;
  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) override;

 private:
  absl::Status MoveWeightsIn();
  absl::Status ProveFrozenBatch(int64_t frozen);
  UpdateSpec UpdateOf() const {
    return {dtype_, options_.optimizer, options_.schedule, prepared_.loss.terms.size(), options_.loss_scale};
  }
  absl::Status EnsureApply();
  bool OneProgramStep(int64_t samples) const;
  bool on_host() const { return backend_.device() == "cpu"; }
  // A program that windows are run with.
  struct Ready {
    Ready(std::unique_ptr<CompiledProgram> program, const std::string& random_key) : compiled(std::move(program)), feeds(*compiled, random_key) {}
    std::unique_ptr<CompiledProgram> compiled;
    WindowFeeds feeds;
  };
  absl::StatusOr<Ready*> Get(ProgramKind kind, int64_t batch);
  absl::StatusOr<Evaluation> Evaluate(ProgramKind kind, const Window& window);
  absl::StatusOr<Graph> BuildGraph(ProgramKind kind, int64_t batch, const ImportedModel& model, const LossChoice& loss);
  absl::Status CheckWindow(const Window& window, int64_t* samples) const;
  RandomKey Key(int64_t micro) const { return {options_.seed, attempted_, micro}; }
  absl::Status CountTargets(const Window& window, int64_t samples);
  absl::Status AddMetrics(const CompiledProgram& program, MetricSums* sums);
  absl::Status AddOutputs(const CompiledProgram& program, int64_t begin, int64_t count, int64_t total, std::map<std::string, HostTensor>* outputs) const;
  size_t BytesBesidePrograms() const;
  absl::Status Update(const Window& window, int64_t samples);
  void HalveMicroBatch();
  absl::Status RunStep(const Window& window, int64_t samples);
  absl::Status RunMicros(const Window& window, bool outputs, std::map<std::string, HostTensor>* fetched);

  std::shared_ptr<const OnnxModel> model_;
  PlanningBackend planning_;
  Backend& backend_;
  SessionOptions options_;
  PrepareOptions prepare_;
  PreparedModel prepared_;                    // for training, at the micro-batch
  Programs programs_;
  DType dtype_;
  std::vector<Metric> metrics_;
  WindowWeights window_weights_;
  TrainingState state_;
  std::map<std::pair<ProgramKind, int64_t>, std::unique_ptr<Ready>> cache_;  // by samples
  std::unique_ptr<CompiledProgram> apply_, swap_;
  bool averaged_ = false;                     // the average stands in the weights' place, and they in its
  bool batch_proved_ = false;                 // that the model follows batches other than the one it was exported for
  double apply_seconds_ = 0;
  int64_t oom_retries_ = 0;
  int64_t attempted_ = 0, reported_attempts_ = 0, reported_skips_ = 0, skipped_in_a_row_ = 0;
};

absl::Status SessionImpl::Init() {
  if (FindRule(options_.optimizer) == nullptr) return Invalid("--optimizer ", options_.optimizer.rule, ": unknown");
  ASSIGN_OR_RETURN(prepared_, Prepare(*model_, prepare_, options_.micro_batch, true));
  ASSIGN_OR_RETURN(metrics_, ChooseMetrics(options_.metrics, prepared_.loss));
  options_.optimizer.output_axes = OutputAxes(prepared_.model.graph);
  RETURN_IF_ERROR(state_.LayOut(options_.optimizer, prepared_, options_.loss_scale.has_value()));
  RETURN_IF_ERROR(state_.AddFrozen(prepared_.model));
  RETURN_IF_ERROR(SetPlateau(1));
  if (options_.loss_scale) RETURN_IF_ERROR(state_.slots().loss_scale.Write(options_.loss_scale->initial));
  RETURN_IF_ERROR(MoveWeightsIn());
  return ProveFrozenBatch(prepared_.model.frozen_batch);
}

// Once: what holds for one batch holds for all.
absl::Status SessionImpl::ProveFrozenBatch(int64_t frozen) {
  if (frozen == 0 || batch_proved_ || options_.plan_only) return absl::OkStatus();
  batch_proved_ = true;
  // In inference mode the graph may read weights that training does not.
  ASSIGN_OR_RETURN(const ImportedModel inference, ImportForward(*model_, prepare_, frozen, false));
  RETURN_IF_ERROR(state_.AddFrozen(inference));
  return ProveBatch(*model_, prepare_, frozen, backend_, state_.bindings());
}

// The weights live in the arenas from now on; what was imported goes.
absl::Status SessionImpl::MoveWeightsIn() {
  std::map<std::string, HostTensor> stored;
  for (ImportedWeight& w : prepared_.model.weights) stored.emplace(w.name, std::exchange(w.value, HostTensor()));
  RETURN_IF_ERROR(SetWeights(stored));
  stored.clear();
  model_->DropResident();
  return absl::OkStatus();
}

absl::Status SessionImpl::EnsureApply() {
  if (apply_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Graph graph, BuildApply(UpdateOf(), state_.groups(), state_.statistics_elements()));
  ASSIGN_OR_RETURN(apply_, programs_.Compile(graph, state_.FlatStatistics(), state_.bindings()));
  return absl::OkStatus();
}

absl::StatusOr<Graph> SessionImpl::BuildGraph(ProgramKind kind, int64_t batch, const ImportedModel& model, const LossChoice& loss) {
  if (kind == ProgramKind::kPredict) return BuildPredict(model);
  if (kind == ProgramKind::kStep) return BuildStep(model, loss, options_.loss, batch, UpdateOf(), state_.rules());
  if (!IsMicro(kind)) return BuildEval(model, loss, options_.loss, batch, kind == ProgramKind::kEval ? metrics_ : std::vector<Metric>());
  return BuildMicro(model, loss, options_.loss, batch, {.first = IsFirst(kind), .outputs = HasOutputs(kind), .scaled = options_.loss_scale.has_value()});
}

absl::StatusOr<SessionImpl::Ready*> SessionImpl::Get(ProgramKind kind, int64_t batch) {
  auto& entry = cache_[{kind, batch}];
  if (entry != nullptr) return entry.get();
  ASSIGN_OR_RETURN(PreparedModel prepared, Prepare(*model_, prepare_, batch, IsTraining(kind)));
  RETURN_IF_ERROR(state_.AddFrozen(prepared.model));
  RETURN_IF_ERROR(ProveFrozenBatch(prepared.model.frozen_batch));
  ASSIGN_OR_RETURN(const Graph graph, BuildGraph(kind, batch, prepared.model, prepared.loss));
  const Bindings statistics = IsMicro(kind) ? state_.PendingStatistics(IsFirst(kind)) : Bindings();
  // Steps in one program are long: timing their nodes, to tell the update from the rest, costs nothing that counts.
  const bool timed = kind == ProgramKind::kStep && on_host();
  ASSIGN_OR_RETURN(auto compiled, programs_.Compile(graph, statistics, state_.bindings(), timed, batch));
  entry = std::make_unique<Ready>(std::move(compiled), prepared.model.random_key);
  return entry.get();
}

absl::Status SessionImpl::CheckWindow(const Window& window, int64_t* samples) const {
  *samples = -1;
  for (const auto& [name, tensor] : window.feeds) {
    if (tensor.type().rank() > 0) *samples = std::max(*samples, tensor.shape()[0]);
  }
  if (*samples < 0) return Invalid("the model takes no input with a batch axis: there are no samples to train on");
  if (*samples == 0) return Invalid("a window without samples");
  return absl::OkStatus();
}

bool SessionImpl::OneProgramStep(int64_t samples) const {
  constexpr size_t kLarge = size_t{1} << 18;  // bytes of an average parameter
  if (samples > options_.micro_batch || options_.step_form == StepForm::kMicroAndApply) return false;
  return options_.step_form == StepForm::kOneProgram || static_cast<size_t>(state_.parameter_bytes()) / state_.rules().size() >= kLarge;
}

absl::Status SessionImpl::RunStep(const Window& window, int64_t samples) {
  ASSIGN_OR_RETURN(Ready * program, Get(ProgramKind::kStep, samples));
  RETURN_IF_ERROR(CountTargets(window, samples));
  RETURN_IF_ERROR(program->feeds.Fill(window, 0, samples, Key(0)));
  RETURN_IF_ERROR(program->feeds.FillWeights(prepared_.loss, window_weights_.weights()));
  return programs_.Run(*program->compiled);
}

// Tells the device what the window's loss is divided by. A window whose targets are all ignored has no loss and no gradient.
absl::Status SessionImpl::CountTargets(const Window& window, int64_t samples) {
  RETURN_IF_ERROR(window_weights_.Count(prepared_.loss, options_.loss, window, samples));
  const std::vector<double>& weights = window_weights_.weights();
  for (size_t i = 0; i < weights.size(); ++i) RETURN_IF_ERROR(state_.slots().window_weight[i].Write(weights[i]));
  return state_.slots().window_targets.Write(window_weights_.targets());
}

absl::Status SessionImpl::RunMicros(const Window& window, bool outputs, std::map<std::string, HostTensor>* fetched) {
  int64_t samples;
  RETURN_IF_ERROR(CheckWindow(window, &samples));
  RETURN_IF_ERROR(CountTargets(window, samples));
  RETURN_IF_ERROR(state_.EnsureGradients());
  int64_t micro = 0;
  for (int64_t begin = 0; begin < samples; begin += options_.micro_batch, ++micro) {
    const int64_t count = std::min(options_.micro_batch, samples - begin);
    const ProgramKind kind = outputs ? (micro == 0 ? ProgramKind::kMicroOutputsFirst : ProgramKind::kMicroOutputsNext)
                                     : (micro == 0 ? ProgramKind::kMicroFirst : ProgramKind::kMicroNext);
    ASSIGN_OR_RETURN(Ready * program, Get(kind, count));
    RETURN_IF_ERROR(program->feeds.Fill(window, begin, count, Key(micro)));
    RETURN_IF_ERROR(program->feeds.FillWeights(prepared_.loss, window_weights_.weights()));
    RETURN_IF_ERROR(programs_.Run(*program->compiled));
    RETURN_IF_ERROR(AddOutputs(*program->compiled, begin, count, samples, fetched));
  }
  return absl::OkStatus();
}

// A weight that the model gives as it is belongs to no sample, however many rows it has.
absl::Status SessionImpl::AddOutputs(const CompiledProgram& program, int64_t begin, int64_t count, int64_t total,
                                     std::map<std::string, HostTensor>* outputs) const {
  for (const auto& [name, region] : program.outputs) {
    ASSIGN_OR_RETURN(HostTensor part, ReadRegion(region));
    if (state_.bindings().contains(name)) {
      (*outputs)[name] = std::move(part);
    } else {
      PlaceRows(&(*outputs)[name], part, begin, count, total);
    }
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::Plan(int64_t samples) {
  if (OneProgramStep(samples)) return Get(ProgramKind::kStep, samples).status();
  RETURN_IF_ERROR(state_.EnsureGradients());
  RETURN_IF_ERROR(EnsureApply());
  const int64_t micro = std::min(samples, options_.micro_batch), rest = samples % micro;
  RETURN_IF_ERROR(Get(ProgramKind::kMicroFirst, micro).status());
  if (samples >= 2 * micro) RETURN_IF_ERROR(Get(ProgramKind::kMicroNext, micro).status());
  return rest == 0 ? absl::OkStatus() : Get(ProgramKind::kMicroNext, rest).status();
}

absl::Status SessionImpl::Update(const Window& window, int64_t samples) {
  if (OneProgramStep(samples)) return RunStep(window, samples);
  RETURN_IF_ERROR(RunMicros(window, false, nullptr));
  RETURN_IF_ERROR(EnsureApply());
  const auto begin = std::chrono::steady_clock::now();
  RETURN_IF_ERROR(programs_.Run(*apply_));
  apply_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return absl::OkStatus();
}

// All programs go, with their feeds and the arena: they are made anew as they are needed. What was pending needs no undoing,
// as the first micro-batch of a window overwrites it.
void SessionImpl::HalveMicroBatch() {
  for (auto& [key, ready] : cache_) {
    if (ready != nullptr) programs_.Release(*ready->compiled);
  }
  cache_.clear();
  options_.micro_batch = (options_.micro_batch + 1) / 2;
  ++oom_retries_;
}

absl::Status SessionImpl::Step(const Window& window) {
  if (state_.groups().empty()) return Invalid("nothing to train: no weight is trainable");
  CHECK(!averaged_) << "the average stands in the weights' place";
  int64_t samples;
  RETURN_IF_ERROR(CheckWindow(window, &samples));
  absl::Status status = Update(window, samples);
  while (absl::IsResourceExhausted(status) && std::min(samples, options_.micro_batch) > 1) {
    options_.micro_batch = std::min(samples, options_.micro_batch);
    HalveMicroBatch();
    status = Update(window, samples);
  }
  RETURN_IF_ERROR(status);
  ++attempted_;
  programs_.WeightsChanged();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SessionImpl::SkippedInARow() {
  constexpr int64_t kEvery = 10;
  if (on_host() || attempted_ % kEvery == 0) {
    RETURN_IF_ERROR(backend_.Synchronize());
    ASSIGN_OR_RETURN(const double skipped, state_.slots().skipped_in_a_row.Read());
    skipped_in_a_row_ = static_cast<int64_t>(skipped);
  }
  return skipped_in_a_row_;
}

absl::StatusOr<StepReport> SessionImpl::Report() {
  RETURN_IF_ERROR(backend_.Synchronize());
  StepReport report;
  Slots& slots = state_.slots();
  ASSIGN_OR_RETURN(const std::vector<double> losses, ReadEach(slots.sum_loss));
  ASSIGN_OR_RETURN(const std::vector<double> weights, ReadEach(slots.sum_weight));
  report.loss = MeanLoss(prepared_.loss, losses, weights);
  report.weight = weights[prepared_.loss.lead];
  ASSIGN_OR_RETURN(report.correct, slots.sum_correct.Read());
  ASSIGN_OR_RETURN(report.targets, slots.sum_targets.Read());
  ASSIGN_OR_RETURN(report.grad_norm, slots.norm.Read());
  ASSIGN_OR_RETURN(report.learning_rate, slots.rate.Read());
  ASSIGN_OR_RETURN(const double skipped, slots.skipped.Read());
  if (options_.loss_scale) {
    ASSIGN_OR_RETURN(report.loss_scale, slots.loss_scale.Read());
  }
  report.updates = attempted_ - reported_attempts_;
  report.skipped = static_cast<int64_t>(skipped) - reported_skips_;
  reported_attempts_ = attempted_;
  reported_skips_ = static_cast<int64_t>(skipped);
  RETURN_IF_ERROR(WriteEach(slots.sum_loss, 0));
  RETURN_IF_ERROR(WriteEach(slots.sum_weight, 0));
  for (Slot* sum : {&slots.sum_correct, &slots.sum_targets}) RETURN_IF_ERROR(sum->Write(0));
  return report;
}

double SessionImpl::optimizer_seconds() const {
  if (!on_host()) return -1;
  double seconds = apply_seconds_;
  for (const auto& [key, ready] : cache_) {
    if (key.first != ProgramKind::kStep || ready == nullptr) continue;
    const Program& program = *ready->compiled->program;
    const auto times = program.NodeSeconds();
    for (size_t n = 0; n < times.size(); ++n) {
      if (IsUpdateSource(program.graph().nodes()[n].source)) seconds += times[n];
    }
  }
  return seconds;
}

std::vector<ProgramProfile> SessionImpl::Profile() const {
  std::vector<ProgramProfile> profiles;
  for (const auto& [key, ready] : cache_) {
    if (ready == nullptr) continue;  // its compilation failed
    const CompiledProgram& compiled = *ready->compiled;
    profiles.push_back({kProgramNames[static_cast<int>(key.first)], key.second, compiled.program.get(), compiled.runs,
                        compiled.repeated, compiled.extra_share});
  }
  if (apply_ != nullptr) profiles.push_back({"apply", 0, apply_->program.get(), apply_->runs});
  for (const CompiledProgram* derive : programs_.derive_programs()) {
    profiles.push_back({"derive", 0, derive->program.get(), derive->runs});
  }
  return profiles;
}

absl::StatusOr<Evaluation> SessionImpl::Evaluate(ProgramKind kind, const Window& window) {
  int64_t samples, micro = 0;
  RETURN_IF_ERROR(CheckWindow(window, &samples));
  Evaluation e;
  Slots& slots = state_.slots();
  RETURN_IF_ERROR(WriteEach(slots.window_loss, 0));
  RETURN_IF_ERROR(slots.window_correct.Write(0));
  for (int64_t begin = 0; begin < samples; begin += options_.micro_batch, ++micro) {
    const int64_t count = std::min(options_.micro_batch, samples - begin);
    ASSIGN_OR_RETURN(Ready * program, Get(kind, count));
    RETURN_IF_ERROR(program->feeds.Fill(window, begin, count, Key(micro)));
    RETURN_IF_ERROR(programs_.Run(*program->compiled));
    RETURN_IF_ERROR(AddMetrics(*program->compiled, &e.metrics));
  }
  RETURN_IF_ERROR(backend_.Synchronize());
  ASSIGN_OR_RETURN(e.loss_sums, ReadEach(slots.window_loss));
  ASSIGN_OR_RETURN(e.correct, slots.window_correct.Read());
  RETURN_IF_ERROR(window_weights_.Count(prepared_.loss, options_.loss, window, samples));
  e.weights = window_weights_.weights();
  e.targets = window_weights_.targets();
  return e;
}

absl::Status SessionImpl::AddMetrics(const CompiledProgram& program, MetricSums* sums) {
  for (size_t m = 0; m < metrics_.size(); ++m) {
    for (size_t stat = 0;; ++stat) {
      const auto output = program.outputs.find(MetricOutput(m, stat));
      if (output == program.outputs.end()) break;
      ASSIGN_OR_RETURN(const HostTensor tensor, ReadRegion(output->second));
      sums->Add(metrics_, m, stat, tensor);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> SessionImpl::Predict(const Window& window) {
  int64_t samples;
  RETURN_IF_ERROR(CheckWindow(window, &samples));
  Evaluation e;
  for (int64_t begin = 0; begin < samples; begin += options_.micro_batch) {
    const int64_t count = std::min(options_.micro_batch, samples - begin);
    ASSIGN_OR_RETURN(Ready * program, Get(ProgramKind::kPredict, count));
    RETURN_IF_ERROR(program->feeds.Fill(window, begin, count, Key(0)));
    RETURN_IF_ERROR(programs_.Run(*program->compiled));
    RETURN_IF_ERROR(AddOutputs(*program->compiled, begin, count, samples, &e.outputs));
  }
  return e;
}

absl::StatusOr<GradientResult> SessionImpl::Gradients(const Window& window) {
  GradientResult result;
  RETURN_IF_ERROR(RunMicros(window, true, &result.outputs));
  RETURN_IF_ERROR(backend_.Synchronize());
  ASSIGN_OR_RETURN(const std::vector<double> losses, ReadEach(state_.slots().window_loss));
  result.loss = MeanLoss(prepared_.loss, losses, window_weights_.weights());
  double scale = 1;
  if (options_.loss_scale) {
    ASSIGN_OR_RETURN(scale, state_.slots().loss_scale.Read());
  }
  for (const WeightDecision& w : prepared_.weights) {
    if (!w.trained) continue;
    ASSIGN_OR_RETURN(HostTensor gradient, ReadRegion(state_.bindings().at(GradName(w.name))));
    for (int64_t i = 0; scale != 1 && i < gradient.size(); ++i) gradient.Set(i, gradient.At(i) / scale);
    result.gradients[w.name] = std::move(gradient);
  }
  return result;
}

absl::StatusOr<double> SessionImpl::TrainingLoss(const Window& window) {
  ASSIGN_OR_RETURN(const Evaluation e, Evaluate(ProgramKind::kTrainingLoss, window));
  return MeanLoss(prepared_.loss, e);
}

absl::StatusOr<std::map<std::string, HostTensor>> SessionImpl::Weights() {
  RETURN_IF_ERROR(backend_.Synchronize());
  return state_.Weights();
}

absl::Status SessionImpl::UseAverage(bool use) {
  if (!has_average() || use == averaged_ || state_.groups().empty()) return absl::OkStatus();
  if (swap_ == nullptr) {
    ASSIGN_OR_RETURN(swap_, programs_.Compile(BuildSwap(dtype_, state_.groups()), {}, state_.bindings()));
  }
  RETURN_IF_ERROR(programs_.Run(*swap_));
  averaged_ = use;
  programs_.WeightsChanged();
  return absl::OkStatus();
}

absl::Status SessionImpl::SetWeights(const std::map<std::string, HostTensor>& weights) {
  programs_.WeightsChanged();
  return state_.SetWeights(weights);
}

size_t SessionImpl::BytesBesidePrograms() const {
  const SessionMemory m = memory();
  return static_cast<size_t>(m.total() - m.packed - m.feeds - m.activations) - programs_.code_bytes();
}

SessionMemory SessionImpl::memory() const {
  SessionMemory m = state_.memory();
  m.packed = static_cast<int64_t>(programs_.derived_bytes());
  m.activations = static_cast<int64_t>(programs_.arena_bytes());
  m.feeds = static_cast<int64_t>(programs_.exchange_bytes());
  m.host = kProcessBytes + static_cast<int64_t>(programs_.code_bytes() + model_->OwnBytes()) + options_.caller_bytes + options_.micro_batch * options_.caller_bytes_per_sample;
  return m;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Create(std::shared_ptr<const OnnxModel> model, Backend* backend,
                                                         SessionOptions options) {
  auto session = std::make_unique<SessionImpl>(std::move(model), backend, std::move(options));
  RETURN_IF_ERROR(session->Init());
  return session;
}

}  // namespace onnxtrain
