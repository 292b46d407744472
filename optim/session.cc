#include "optim/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
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

// Code and tables of libraries, kernels made at run time, stacks.
constexpr int64_t kProcessBytes = int64_t{12} << 20;

class SessionImpl : public Session {
 public:
  SessionImpl(std::shared_ptr<const OnnxModel> model, Backend* backend, SessionOptions options)
      : model_(std::move(model)), planning_(*backend), backend_(options.plan_only ? planning_ : *backend), options_(std::move(options)),
        programs_(&backend_, options_.compute, options_.time_nodes, options_.recompute, [this] { return BytesBesidePrograms(); }),
        dtype_(options_.import.float_type) {
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
  absl::Status SetPlateau(double factor) override { return WriteScalar(slot::kPlateau, factor); }
  bool has_average() const override { return options_.optimizer.ema_decay > 0; }
  absl::Status UseAverage(bool use) override;
  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights) override;

 private:
  absl::Status LayOut();
  void LayOutParameters();
  absl::Status LayOutMoment(const RuleState& state);
  void LayOutSlots();
  absl::Status AddFrozen(const ImportedModel& model);
  absl::Status MoveWeightsIn();
  absl::Status ProveFrozenBatch(int64_t frozen);
  UpdateSpec UpdateOf() const {
    return {dtype_, options_.optimizer, options_.schedule, prepared_.loss.terms.size(), options_.loss_scale};
  }
  absl::Status EnsureGradients();
  absl::Status EnsureApply();
  bool OneProgramStep(int64_t samples) const;
  bool on_host() const { return backend_.device() == "cpu"; }
  absl::StatusOr<CompiledProgram*> Get(ProgramKind kind, int64_t batch);
  absl::StatusOr<Evaluation> Evaluate(ProgramKind kind, const Window& window);
  absl::StatusOr<Graph> BuildGraph(ProgramKind kind, int64_t batch, const ImportedModel& model, const LossChoice& loss);
  Bindings StatisticsBindings(ProgramKind kind) const;
  absl::Status CheckWindow(const Window& window, int64_t* samples) const;
  absl::Status Feed(CompiledProgram& program, const Window& window, int64_t begin, int64_t count, int64_t micro);
  absl::Status FeedTensor(const Region& feed, const std::string& name, const HostTensor& tensor, int64_t begin, int64_t count);
  absl::StatusOr<double> Targets(const Window& window, int64_t samples, const std::vector<double>& weights);
  absl::Status FeedWeights(CompiledProgram& program, const std::vector<double>& weights);
  absl::Status AddMetrics(const CompiledProgram& program, MetricSums* sums);
  size_t BytesBesidePrograms() const;
  absl::Status Update(const Window& window, int64_t samples);
  void HalveMicroBatch();
  absl::Status RunStep(const Window& window, int64_t samples);
  absl::Status RunMicros(const Window& window, bool outputs, std::map<std::string, HostTensor>* fetched);
  absl::StatusOr<double> ReadScalar(const std::string& name) const;
  absl::StatusOr<std::vector<double>> ReadOfTerms(const char* name) const;
  absl::Status WriteScalar(const std::string& name, double value);
  absl::Status ClearOfTerms(const char* name);
  void Expose(const Arena& arena);
  void ExposeMembers(const WeightGroup& group, const Arena& arena, const std::string& flat,
                     const std::function<std::string(const std::string&)>& name);

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
  std::vector<WeightGroup> members_;          // what each of groups_ consists of
  std::vector<FlatGroup> groups_;
  std::map<std::string, UpdateRule> rules_;   // of each trained parameter
  // Parameters, gradients and each moment have the same layout: the groups one after the other.
  Arena params_, grads_, statistics_, pending_, slots_;
  std::vector<std::unique_ptr<Arena>> moments_, frozen_;
  Bindings state_;                            // everything above by name
  std::map<std::pair<ProgramKind, int64_t>, std::unique_ptr<CompiledProgram>> cache_;
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
  RETURN_IF_ERROR(LayOut());
  RETURN_IF_ERROR(AddFrozen(prepared_.model));
  RETURN_IF_ERROR(SetPlateau(1));
  if (options_.loss_scale) RETURN_IF_ERROR(WriteScalar(slot::kLossScale, options_.loss_scale->initial));
  RETURN_IF_ERROR(MoveWeightsIn());
  return ProveFrozenBatch(prepared_.model.frozen_batch);
}

// Once: what holds for one batch holds for all.
absl::Status SessionImpl::ProveFrozenBatch(int64_t frozen) {
  if (frozen == 0 || batch_proved_ || options_.plan_only) return absl::OkStatus();
  batch_proved_ = true;
  // In inference mode the graph may read weights that training does not.
  ASSIGN_OR_RETURN(const ImportedModel inference, ImportForward(*model_, prepare_, frozen, false));
  RETURN_IF_ERROR(AddFrozen(inference));
  return ProveBatch(*model_, prepare_, frozen, backend_, state_);
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

// A group's flat tensor spans its parameters with the padding between them, so each is laid out as a block of its own and
// the parameters are slices of it.
void SessionImpl::LayOutParameters() {
  for (const WeightGroup& members : members_) {
    Arena layout;  // offsets only
    for (const WeightDecision* w : members.members) {
      layout.Add(w->name, {dtype_, w->type.shape});
      rules_[w->name] = members.rule;
    }
    FlatGroup group{members.name, static_cast<int64_t>(layout.size() / SizeOf(dtype_)), members.rule, {}};
    for (const WeightDecision* w : members.members) group.members.emplace_back(w->name, w->type.shape);
    const Type flat{dtype_, {group.elements}};
    params_.Add(ParamName(group.name), flat);
    grads_.Add(GradName(group.name), flat);
    groups_.push_back(std::move(group));
  }
}

void SessionImpl::LayOutSlots() {
  for (const char* name : {slot::kWindowCorrect, slot::kWindowTargets, slot::kSumCorrect, slot::kSumTargets, slot::kNorm, slot::kRate, slot::kPlateau}) slots_.Add(name, {dtype_, {}});
  for (const char* name : {slot::kWindowLoss, slot::kWindowWeight, slot::kSumLoss, slot::kSumWeight}) {
    for (size_t i = 0; i < prepared_.loss.terms.size(); ++i) slots_.Add(OfTerm(name, i), {dtype_, {}});
  }
  if (options_.loss_scale) slots_.Add(slot::kLossScale, {dtype_, {}});
  for (const char* name : {slot::kApplied, slot::kSkipped, slot::kSkippedInARow, slot::kScaleApplied}) {
    slots_.Add(name, {DType::kInt64, {}});
  }
}

void SessionImpl::Expose(const Arena& arena) {
  for (const std::string& name : arena.names()) state_[name] = arena.At(name);
}

// Names the parts of a flat group, one per parameter.
void SessionImpl::ExposeMembers(const WeightGroup& group, const Arena& arena, const std::string& flat,
                                const std::function<std::string(const std::string&)>& name) {
  size_t offset = arena.At(flat).view.offset;
  for (const WeightDecision* w : group.members) {
    const Type type{dtype_, w->type.shape};
    state_[name(w->name)] = {{arena.buffer(), offset}, type};
    offset += (type.bytes() + 63) / 64 * 64;
  }
}

// A moment of the parameters' shape is laid out as they are; one of a shape of its own stands for each parameter by itself.
absl::Status SessionImpl::LayOutMoment(const RuleState& state) {
  auto arena = std::make_unique<Arena>();
  for (const FlatGroup& g : groups_) {
    if (state.shape == nullptr) arena->Add(MomentName(state.name, g.name), {dtype_, {g.elements}});
    if (state.shape == nullptr) continue;
    for (const auto& [name, shape] : g.members) arena->Add(MomentName(state.name, name), {dtype_, state.shape(shape)});
  }
  RETURN_IF_ERROR(arena->Allocate(backend_, "moments"));
  Expose(*arena);
  for (const WeightGroup& g : members_) {
    if (state.shape != nullptr) break;
    ExposeMembers(g, *arena, MomentName(state.name, g.name), [&](const std::string& w) { return MomentName(state.name, w); });
  }
  moments_.push_back(std::move(arena));
  return absl::OkStatus();
}

absl::Status SessionImpl::LayOut() {
  ASSIGN_OR_RETURN(members_, GroupWeights(options_.optimizer, prepared_.weights));
  LayOutParameters();
  LayOutSlots();
  for (const StateUpdate& update : prepared_.model.state_updates) {
    const Graph& graph = prepared_.model.graph;
    const Type& type = graph.type(graph.FindInput(update.state)->value);
    statistics_.Add(update.state, type);
    pending_.Add(update.state, type);
  }
  for (Arena* arena : {&params_, &statistics_, &pending_, &slots_}) RETURN_IF_ERROR(arena->Allocate(backend_, "weights"));
  for (const RuleState& state : FindRule(options_.optimizer)->state) RETURN_IF_ERROR(LayOutMoment(state));
  if (has_average()) RETURN_IF_ERROR(LayOutMoment({kAverage}));
  Expose(params_);
  Expose(statistics_);
  Expose(slots_);
  for (const WeightGroup& g : members_) ExposeMembers(g, params_, ParamName(g.name), [](const std::string& w) { return w; });
  return absl::OkStatus();
}

// Memory for weights that are neither trained nor updated statistics. Inference graphs may have some that the training
// graph has not.
absl::Status SessionImpl::AddFrozen(const ImportedModel& model) {
  auto arena = std::make_unique<Arena>();
  std::vector<const ImportedWeight*> added;
  for (const ImportedWeight& w : model.weights) {
    if (state_.contains(w.name)) continue;
    arena->Add(w.name, w.value.type());
    added.push_back(&w);
  }
  RETURN_IF_ERROR(arena->Allocate(backend_, "frozen weights"));
  Expose(*arena);
  for (const ImportedWeight* w : added) RETURN_IF_ERROR(WriteRegion(state_.at(w->name), w->value));
  frozen_.push_back(std::move(arena));
  return absl::OkStatus();
}

// Gradients have memory of their own only where windows are accumulated or somebody asks for them.
absl::Status SessionImpl::EnsureGradients() {
  if (grads_.buffer() != nullptr || groups_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(grads_.Allocate(backend_, "gradients"));
  Expose(grads_);
  for (const WeightGroup& g : members_) ExposeMembers(g, grads_, GradName(g.name), [](const std::string& w) { return GradName(w); });
  return absl::OkStatus();
}

absl::Status SessionImpl::EnsureApply() {
  if (apply_ != nullptr) return absl::OkStatus();
  const auto elements = static_cast<int64_t>(statistics_.size() / SizeOf(dtype_));
  ASSIGN_OR_RETURN(const Graph graph, BuildApply(UpdateOf(), groups_, elements));
  Bindings whole;
  const Type flat{dtype_, {elements}};
  if (elements > 0) {
    whole[kStatistics] = {{statistics_.buffer(), 0}, flat};
    whole[kPending] = {{pending_.buffer(), 0}, flat};
  }
  ASSIGN_OR_RETURN(apply_, programs_.Compile(graph, whole, state_));
  return absl::OkStatus();
}

// Where a micro program finds and leaves running statistics: see training_graph.h.
Bindings SessionImpl::StatisticsBindings(ProgramKind kind) const {
  Bindings bindings;
  if (!IsMicro(kind)) return bindings;
  for (const StateUpdate& update : prepared_.model.state_updates) {
    bindings[update.output] = pending_.At(update.state);
    if (!IsFirst(kind)) bindings[update.state] = pending_.At(update.state);
  }
  return bindings;
}

absl::StatusOr<Graph> SessionImpl::BuildGraph(ProgramKind kind, int64_t batch, const ImportedModel& model, const LossChoice& loss) {
  if (kind == ProgramKind::kPredict) return BuildPredict(model);
  if (kind == ProgramKind::kStep) return BuildStep(model, loss, options_.loss, batch, UpdateOf(), rules_);
  if (!IsMicro(kind)) return BuildEval(model, loss, options_.loss, batch, kind == ProgramKind::kEval ? metrics_ : std::vector<Metric>());
  return BuildMicro(model, loss, options_.loss, batch, {.first = IsFirst(kind), .outputs = HasOutputs(kind), .scaled = options_.loss_scale.has_value()});
}

absl::StatusOr<CompiledProgram*> SessionImpl::Get(ProgramKind kind, int64_t batch) {
  auto& entry = cache_[{kind, batch}];
  if (entry != nullptr) return entry.get();
  ASSIGN_OR_RETURN(PreparedModel prepared, Prepare(*model_, prepare_, batch, IsTraining(kind)));
  RETURN_IF_ERROR(AddFrozen(prepared.model));
  RETURN_IF_ERROR(ProveFrozenBatch(prepared.model.frozen_batch));
  ASSIGN_OR_RETURN(const Graph graph, BuildGraph(kind, batch, prepared.model, prepared.loss));
  // Steps in one program are long: timing their nodes, to tell the update from the rest, costs nothing that counts.
  ASSIGN_OR_RETURN(entry, programs_.Compile(graph, StatisticsBindings(kind), state_, kind == ProgramKind::kStep && on_host()));
  return entry.get();
}

absl::Status SessionImpl::FeedTensor(const Region& feed, const std::string& name, const HostTensor& tensor, int64_t begin,
                                     int64_t count) {
  const bool batched = tensor.type().rank() > 0 && feed.type.rank() > 0 && feed.type.shape[0] == count;
  const size_t row = batched && tensor.shape()[0] > 0 ? tensor.bytes().size() / tensor.shape()[0] : 0;
  const auto bytes = batched ? tensor.bytes().subspan(begin * row, count * row) : tensor.bytes();
  if (tensor.dtype() != feed.type.dtype || bytes.size() != feed.type.bytes()) {
    return Invalid("'", name, "' is fed ", ToString(tensor.type()), " but the model wants ", ToString(feed.type));
  }
  return bytes.empty() ? absl::OkStatus() : feed.view.buffer->Write(feed.view.offset, bytes);
}

absl::Status SessionImpl::Feed(CompiledProgram& program, const Window& window, int64_t begin, int64_t count, int64_t micro) {
  for (const auto& [name, region] : program.feeds) {
    if (name == kLabelFeed) {
      RETURN_IF_ERROR(FeedTensor(region, "label", window.labels, begin, count));
    } else if (name == prepared_.model.random_key && !name.empty()) {
      const std::vector<int64_t> key = {static_cast<int64_t>(options_.seed & 0xffffffff), attempted_, micro, 0};
      RETURN_IF_ERROR(WriteRegion(region, HostTensor::FromInts(region.type, key)));
    } else if (!name.starts_with(kInvWeightFeed)) {
      auto it = window.feeds.find(name);
      if (it == window.feeds.end()) return Invalid("model input '", name, "' is not fed");
      RETURN_IF_ERROR(FeedTensor(region, name, it->second, begin, count));
    }
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::CheckWindow(const Window& window, int64_t* samples) const {
  *samples = -1;
  for (const auto& [name, tensor] : window.feeds) {
    if (tensor.type().rank() > 0) *samples = std::max(*samples, tensor.shape()[0]);
  }
  if (*samples <= 0) return Invalid("a window without samples");
  return absl::OkStatus();
}

bool SessionImpl::OneProgramStep(int64_t samples) const {
  constexpr size_t kLarge = size_t{1} << 18;  // bytes of an average parameter
  if (samples > options_.micro_batch || options_.step_form == StepForm::kMicroAndApply) return false;
  return options_.step_form == StepForm::kOneProgram || params_.size() / rules_.size() >= kLarge;
}

absl::Status SessionImpl::RunStep(const Window& window, int64_t samples) {
  ASSIGN_OR_RETURN(CompiledProgram * program, Get(ProgramKind::kStep, samples));
  RETURN_IF_ERROR(Feed(*program, window, 0, samples, 0));
  ASSIGN_OR_RETURN(const std::vector<double> weights, window_weights_.Of(prepared_.loss, options_.loss, window, samples));
  ASSIGN_OR_RETURN(const double targets, Targets(window, samples, weights));
  RETURN_IF_ERROR(WriteScalar(slot::kWindowTargets, targets));
  RETURN_IF_ERROR(FeedWeights(*program, weights));
  return programs_.Run(*program);
}

// How many targets the leading term has: its weight, where all classes weigh 1.
absl::StatusOr<double> SessionImpl::Targets(const Window& window, int64_t samples, const std::vector<double>& weights) {
  if (options_.loss.class_weights.empty()) return weights[prepared_.loss.lead];
  LossSpec plain = options_.loss;
  plain.class_weights.clear();
  ASSIGN_OR_RETURN(const std::vector<double> counts, window_weights_.Of(prepared_.loss, plain, window, samples));
  return counts[prepared_.loss.lead];
}

// W of the window and, for the backward pass, factor/W, of each loss. A window whose targets are all ignored has no loss and
// no gradient.
absl::Status SessionImpl::FeedWeights(CompiledProgram& program, const std::vector<double>& weights) {
  for (size_t i = 0; i < weights.size(); ++i) {
    RETURN_IF_ERROR(WriteScalar(OfTerm(slot::kWindowWeight, i), weights[i]));
    const HostTensor inverse = HostTensor::Scalar(dtype_, InverseWeight(prepared_.loss.terms[i], weights[i]));
    RETURN_IF_ERROR(WriteRegion(program.feeds.at(OfTerm(kInvWeightFeed, i)), inverse));
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::RunMicros(const Window& window, bool outputs, std::map<std::string, HostTensor>* fetched) {
  int64_t samples;
  RETURN_IF_ERROR(CheckWindow(window, &samples));
  ASSIGN_OR_RETURN(const std::vector<double> weights, window_weights_.Of(prepared_.loss, options_.loss, window, samples));
  ASSIGN_OR_RETURN(const double targets, Targets(window, samples, weights));
  RETURN_IF_ERROR(WriteScalar(slot::kWindowTargets, targets));
  RETURN_IF_ERROR(EnsureGradients());
  int64_t micro = 0;
  for (int64_t begin = 0; begin < samples; begin += options_.micro_batch, ++micro) {
    const int64_t count = std::min(options_.micro_batch, samples - begin);
    const ProgramKind kind = outputs ? (micro == 0 ? ProgramKind::kMicroOutputsFirst : ProgramKind::kMicroOutputsNext)
                                     : (micro == 0 ? ProgramKind::kMicroFirst : ProgramKind::kMicroNext);
    ASSIGN_OR_RETURN(CompiledProgram * program, Get(kind, count));
    RETURN_IF_ERROR(Feed(*program, window, begin, count, micro));
    RETURN_IF_ERROR(FeedWeights(*program, weights));
    RETURN_IF_ERROR(programs_.Run(*program));
    for (const auto& [name, region] : program->outputs) {
      ASSIGN_OR_RETURN(const HostTensor part, ReadRegion(region));
      PlaceRows(&(*fetched)[name], part, begin, count, samples);
    }
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::Plan(int64_t samples) {
  if (OneProgramStep(samples)) return Get(ProgramKind::kStep, samples).status();
  RETURN_IF_ERROR(EnsureGradients());
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
  for (auto& [key, compiled] : cache_) {
    if (compiled != nullptr) programs_.Release(*compiled);
  }
  cache_.clear();
  options_.micro_batch = (options_.micro_batch + 1) / 2;
  ++oom_retries_;
}

absl::Status SessionImpl::Step(const Window& window) {
  if (groups_.empty()) return Invalid("nothing to train: no weight is trainable");
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

absl::StatusOr<double> SessionImpl::ReadScalar(const std::string& name) const {
  ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(state_.at(name)));
  return value.At(0);
}

absl::Status SessionImpl::WriteScalar(const std::string& name, double value) {
  const Region& region = state_.at(name);
  return WriteRegion(region, HostTensor::Scalar(region.type.dtype, value));
}

absl::StatusOr<std::vector<double>> SessionImpl::ReadOfTerms(const char* name) const {
  std::vector<double> values(prepared_.loss.terms.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSIGN_OR_RETURN(values[i], ReadScalar(OfTerm(name, i)));
  }
  return values;
}

absl::Status SessionImpl::ClearOfTerms(const char* name) {
  for (size_t i = 0; i < prepared_.loss.terms.size(); ++i) RETURN_IF_ERROR(WriteScalar(OfTerm(name, i), 0));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SessionImpl::SkippedInARow() {
  constexpr int64_t kEvery = 10;
  if (on_host() || attempted_ % kEvery == 0) {
    RETURN_IF_ERROR(backend_.Synchronize());
    ASSIGN_OR_RETURN(const double skipped, ReadScalar(slot::kSkippedInARow));
    skipped_in_a_row_ = static_cast<int64_t>(skipped);
  }
  return skipped_in_a_row_;
}

absl::StatusOr<StepReport> SessionImpl::Report() {
  RETURN_IF_ERROR(backend_.Synchronize());
  StepReport report;
  ASSIGN_OR_RETURN(const std::vector<double> losses, ReadOfTerms(slot::kSumLoss));
  ASSIGN_OR_RETURN(const std::vector<double> weights, ReadOfTerms(slot::kSumWeight));
  report.loss = MeanLoss(prepared_.loss, losses, weights);
  report.weight = weights[prepared_.loss.lead];
  ASSIGN_OR_RETURN(report.correct, ReadScalar(slot::kSumCorrect));
  ASSIGN_OR_RETURN(report.targets, ReadScalar(slot::kSumTargets));
  ASSIGN_OR_RETURN(report.grad_norm, ReadScalar(slot::kNorm));
  ASSIGN_OR_RETURN(report.learning_rate, ReadScalar(slot::kRate));
  ASSIGN_OR_RETURN(const double skipped, ReadScalar(slot::kSkipped));
  if (options_.loss_scale) {
    ASSIGN_OR_RETURN(report.loss_scale, ReadScalar(slot::kLossScale));
  }
  report.updates = attempted_ - reported_attempts_;
  report.skipped = static_cast<int64_t>(skipped) - reported_skips_;
  reported_attempts_ = attempted_;
  reported_skips_ = static_cast<int64_t>(skipped);
  RETURN_IF_ERROR(ClearOfTerms(slot::kSumLoss));
  RETURN_IF_ERROR(ClearOfTerms(slot::kSumWeight));
  for (const char* name : {slot::kSumCorrect, slot::kSumTargets}) RETURN_IF_ERROR(WriteScalar(name, 0));
  return report;
}

double SessionImpl::optimizer_seconds() const {
  if (!on_host()) return -1;
  double seconds = apply_seconds_;
  for (const auto& [key, compiled] : cache_) {
    if (key.first != ProgramKind::kStep || compiled == nullptr) continue;
    const Program& program = *compiled->program;
    const auto times = program.NodeSeconds();
    for (size_t n = 0; n < times.size(); ++n) {
      if (IsUpdateSource(program.graph().nodes()[n].source)) seconds += times[n];
    }
  }
  return seconds;
}

std::vector<ProgramProfile> SessionImpl::Profile() const {
  std::vector<ProgramProfile> profiles;
  for (const auto& [key, compiled] : cache_) {
    if (compiled == nullptr) continue;  // its compilation failed
    profiles.push_back({kProgramNames[static_cast<int>(key.first)], key.second, compiled->program.get(), compiled->runs,
                        compiled->repeated, compiled->extra_share});
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
  RETURN_IF_ERROR(ClearOfTerms(slot::kWindowLoss));
  RETURN_IF_ERROR(WriteScalar(slot::kWindowCorrect, 0));
  for (int64_t begin = 0; begin < samples; begin += options_.micro_batch, ++micro) {
    const int64_t count = std::min(options_.micro_batch, samples - begin);
    ASSIGN_OR_RETURN(CompiledProgram * program, Get(kind, count));
    RETURN_IF_ERROR(Feed(*program, window, begin, count, micro));
    RETURN_IF_ERROR(programs_.Run(*program));
    RETURN_IF_ERROR(AddMetrics(*program, &e.metrics));
  }
  RETURN_IF_ERROR(backend_.Synchronize());
  ASSIGN_OR_RETURN(e.loss_sums, ReadOfTerms(slot::kWindowLoss));
  ASSIGN_OR_RETURN(e.correct, ReadScalar(slot::kWindowCorrect));
  ASSIGN_OR_RETURN(e.weights, window_weights_.Of(prepared_.loss, options_.loss, window, samples));
  ASSIGN_OR_RETURN(e.targets, Targets(window, samples, e.weights));
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
    ASSIGN_OR_RETURN(CompiledProgram * program, Get(ProgramKind::kPredict, count));
    RETURN_IF_ERROR(Feed(*program, window, begin, count, 0));
    RETURN_IF_ERROR(programs_.Run(*program));
    for (const auto& [name, region] : program->outputs) {
      ASSIGN_OR_RETURN(const HostTensor part, ReadRegion(region));
      PlaceRows(&e.outputs[name], part, begin, count, samples);
    }
  }
  return e;
}

absl::StatusOr<GradientResult> SessionImpl::Gradients(const Window& window) {
  GradientResult result;
  RETURN_IF_ERROR(RunMicros(window, true, &result.outputs));
  RETURN_IF_ERROR(backend_.Synchronize());
  ASSIGN_OR_RETURN(const std::vector<double> losses, ReadOfTerms(slot::kWindowLoss));
  ASSIGN_OR_RETURN(const std::vector<double> weights, ReadOfTerms(slot::kWindowWeight));
  result.loss = MeanLoss(prepared_.loss, losses, weights);
  double scale = 1;
  if (options_.loss_scale) {
    ASSIGN_OR_RETURN(scale, ReadScalar(slot::kLossScale));
  }
  for (const WeightDecision& w : prepared_.weights) {
    if (!w.trained) continue;
    ASSIGN_OR_RETURN(HostTensor gradient, ReadRegion(state_.at(GradName(w.name))));
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
  std::map<std::string, HostTensor> weights;
  for (const WeightDecision& w : prepared_.weights) {
    if (w.trained || statistics_.Has(w.name)) {
      ASSIGN_OR_RETURN(weights[w.name], ReadRegion(state_.at(w.name)));
    }
  }
  return weights;
}

absl::Status SessionImpl::UseAverage(bool use) {
  if (!has_average() || use == averaged_ || groups_.empty()) return absl::OkStatus();
  if (swap_ == nullptr) {
    ASSIGN_OR_RETURN(swap_, programs_.Compile(BuildSwap(dtype_, groups_), {}, state_));
  }
  RETURN_IF_ERROR(programs_.Run(*swap_));
  averaged_ = use;
  programs_.WeightsChanged();
  return absl::OkStatus();
}

// The average of weights that were set is what they are.
absl::Status SessionImpl::SetWeights(const std::map<std::string, HostTensor>& weights) {
  for (const auto& [name, value] : weights) {
    auto it = state_.find(name);
    if (it == state_.end()) return Invalid("the model has no weight named '", name, "'");
    if (!(it->second.type == value.type())) {
      return Invalid("weight '", name, "' has type ", ToString(it->second.type), ", got ", ToString(value.type()));
    }
    RETURN_IF_ERROR(WriteRegion(it->second, value));
    const auto average = state_.find(MomentName(kAverage, name));
    if (average != state_.end()) RETURN_IF_ERROR(WriteRegion(average->second, value));
  }
  programs_.WeightsChanged();
  return absl::OkStatus();
}

size_t SessionImpl::BytesBesidePrograms() const {
  const SessionMemory m = memory();
  return static_cast<size_t>(m.total() - m.packed - m.feeds - m.activations);
}

SessionMemory SessionImpl::memory() const {
  const auto size = [](const Arena& arena) { return static_cast<int64_t>(arena.size()); };
  SessionMemory m{.parameters = size(params_), .statistics = size(statistics_) + size(pending_) + size(slots_)};
  for (const auto& arena : frozen_) m.parameters += size(*arena);
  if (grads_.buffer() != nullptr) m.gradients = size(grads_);
  for (const auto& arena : moments_) m.moments += size(*arena);
  m.packed = static_cast<int64_t>(programs_.derived_bytes());
  m.activations = static_cast<int64_t>(programs_.arena_bytes());
  m.feeds = static_cast<int64_t>(programs_.exchange_bytes());
  m.host = kProcessBytes + static_cast<int64_t>(model_->OwnBytes()) + options_.caller_bytes + options_.micro_batch * options_.caller_bytes_per_sample;
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
