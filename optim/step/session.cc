#include "optim/step/session.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "frontend/base/cancellation.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/record/telemetry/trace.h"
#include "optim/step/batch_feeds.h"
#include "optim/step/finite_check.h"
#include "optim/step/gradient_scaling.h"
#include "optim/step/rules/rule.h"
#include "optim/step/session_impl.h"
#include "optim/step/verify_batch_size.h"

namespace onnxtrain {

absl::Status SessionImpl::Init() {
  if (options_.deterministic && !on_host()) return Invalid("`deterministic`: sums gradients on a CPU only");
  const bool whole = !options_.communicates() && !options_.deterministic;
  if (options_.optimizer.in_backward && (!whole || options_.step_form == StepForm::kMicroAndApply))
    return Invalid("`optimizer_in_backward`: ",
                   whole ? "the sizes of inputs differ within an update" : "gradients are summed before the update",
                   ", so that no update is one program");
  if (FindRule(options_.optimizer) == nullptr) return Invalid("`optimizer` ", options_.optimizer.rule, ": unknown");
  ASSIGN_OR_RETURN(prepared_, PrepareTrained());
  prepare_.import.float_weights = prepared_.float_weights;
  loss_denominators_.emplace(prepared_.loss, options_.loss);
  ASSIGN_OR_RETURN(metrics_, ChooseMetrics(options_.metrics, prepared_.loss));
  options_.optimizer.output_axes = OutputAxes(prepared_.model.graph);
  // PrepareTrained of a part has found those of the whole model.
  if (!options_.pipeline.on() && !options_.tensor.on()) options_.optimizer.tables = FindTables(prepared_.model);
  RETURN_IF_ERROR(state_.LayOut(options_.optimizer, prepared_, options_.loss_scale.has_value()));
  RETURN_IF_ERROR(state_.AddFrozen(prepared_.model, *models_->model(), !options_.plan_only));
  RETURN_IF_ERROR(ChooseStrategy());
  RETURN_IF_ERROR(SetPlateau(1));
  if (options_.loss_scale) RETURN_IF_ERROR(state_.device_scalars().loss_scale.Write(options_.loss_scale->initial));
  RETURN_IF_ERROR(MoveWeightsIn());
  return CheckBatch();
}

absl::Status SessionImpl::CheckBatch() {
  const int64_t exported = FindExportedBatch();
  const absl::Status follows = VerifyFrozenBatch(exported);
  return absl::IsInvalidArgument(follows) ? UseExportedBatch(exported) : follows;
}

// Returns the batch size for which the file was exported, if micro-batches may have another size; 0 if the model is not
// bound to one. If micro-batches have exactly that size, this shows only when another size is imported.
int64_t SessionImpl::FindExportedBatch() {
  const auto is_declared = [&](const ModelInput& input) {
    const auto found = prepare_.import.batch_axes.find(input.name);
    const int axis = found == prepare_.import.batch_axes.end() ? 0 : found->second;
    return axis >= 0 && axis < std::ssize(input.dims) && input.dims[axis] == options_.micro_batch;
  };
  const bool hidden = options_.micro_batch > 1 && options_.fixed_batch == 0 && !options_.plan_only &&
                      std::ranges::any_of(models_->model()->inputs(), is_declared);
  if (prepared_.model.exported_batch > 0 || !hidden) return prepared_.model.exported_batch;
  const auto other = models_->ImportForward(prepare_, options_.micro_batch + 1, false, false);
  return other.ok() ? (*other)->exported_batch : 0;
}

// Changes micro-batches to the size for which the model was exported. Keeps weights and their layout, which the state
// refers to. Returns kOutOfRange for labels that fit the outputs only with another batch size.
absl::Status SessionImpl::UseExportedBatch(int64_t exported) {
  options_.micro_batch = options_.fixed_batch = exported;
  ASSIGN_OR_RETURN(PreparedModel fixed, models_->PrepareWeights(prepare_, exported, true, false));
  auto loss = ChooseLoss(fixed.model, prepare_.loss, prepare_.labels);
  const auto sample = [](const LossFeed& feed) { return feed.sample; };
  if (!loss.ok() || !std::ranges::equal(loss->feeds, prepared_.loss.feeds, {}, sample, sample))
    return absl::OutOfRangeError(StrCat(models_->model()->path(), ": follows no batch but ", exported,
                                        ", with which its outputs need other labels: use `batch_size` ", exported));
  fixed.loss = *std::move(loss);
  fixed.model.weights.clear();
  prepared_.model = std::move(fixed.model);
  prepared_.loss = std::move(fixed.loss);
  return absl::OkStatus();
}

// Verifies once: the result holds for every batch size.
absl::Status SessionImpl::VerifyFrozenBatch(int64_t frozen) {
  if (frozen == 0 || batch_verified_ || options_.plan_only) return absl::OkStatus();
  batch_verified_ = true;
  ASSIGN_OR_RETURN(const auto inference, models_->ImportForward(prepare_, frozen, false, false));
  if (!inference->random_key.empty()) return absl::OkStatus();  // other numbers for other batches: nothing to compare
  RETURN_IF_ERROR(EnsureFrozen(*inference, frozen, false));
  return VerifyBatchSize(*models_, prepare_, frozen, backend_, state_.bindings());
}

// Adds the weights of a model that was imported with or without values: inference graphs may read weights that training
// graphs do not.
absl::Status SessionImpl::EnsureFrozen(const ImportedModel& model, int64_t batch, bool training) {
  if (state_.HasAllWeights(model)) return absl::OkStatus();
  const bool load = !options_.plan_only;
  ASSIGN_OR_RETURN(const PreparedModel complete, models_->PrepareWeights(prepare_, batch, training, load));
  return state_.AddFrozen(complete.model, *models_->model(), load);
}

// Moves the imported weights that training changes into the arenas.
absl::Status SessionImpl::MoveWeightsIn() {
  if (options_.plan_only) return absl::OkStatus();
  std::map<std::string, HostTensor> stored;
  for (ImportedWeight& w : prepared_.model.weights) {
    HostTensor value = std::exchange(w.value, HostTensor());
    if (!state_.IsFrozen(w.name)) stored.emplace(w.name, std::move(value));
  }
  RETURN_IF_ERROR(SetWeights(stored));
  stored.clear();
  ReleaseImported();
  return absl::OkStatus();
}

// Drops the values that the import keeps and the pages of the file that it has read, because the arenas have the
// values.
void SessionImpl::ReleaseImported() {
  models_->ReleaseValues();
  models_->model()->ReleasePages();
}

absl::Status SessionImpl::EnsureApply() {
  if (compiled_.apply != nullptr) return absl::OkStatus();
  const bool divided = !state_.shard().whole();
  ASSIGN_OR_RETURN(
      Graph graph,
      BuildApply(MakeUpdateSpec(), divided ? state_.shard_groups() : state_.groups(), state_.statistics_elements(),
                 divided && !state_.divides_gradients() ? state_.norm_groups() : std::vector<FlatGroup>(),
                 norm_is_given()));
  ASSIGN_OR_RETURN(compiled_.apply, programs_.Compile(std::move(graph), ApplyBindings(), state_.bindings()));
  compiled_.apply->name = "apply";
  return absl::OkStatus();
}

Bindings SessionImpl::ApplyBindings() const {
  Bindings bindings = state_.FlatStatistics();
  if (!state_.shard().whole()) bindings.merge(state_.ShardBindings());
  return bindings;
}

absl::StatusOr<Graph> SessionImpl::BuildGraph(ProgramKind kind, int64_t batch, const ImportedModel& model,
                                              const LossChoice& loss) {
  if (kind == ProgramKind::kPredict) return BuildPredict(model);
  if (kind == ProgramKind::kNorm) return BuildNorm(model, loss, options_.loss, batch, MakeUpdateSpec());
  if (kind == ProgramKind::kStep) return BuildStep(model, loss, options_.loss, batch, MakeUpdateSpec(), state_.rules());
  if (kind == ProgramKind::kFiniteCheck) return BuildFiniteCheck(model, loss, options_.loss, batch);
  if (!IsMicro(kind))
    return BuildEval(model, loss, options_.loss, batch, kind == ProgramKind::kEval ? metrics_ : std::vector<Metric>());
  return BuildMicro(model, loss, options_.loss, batch,
                    {.first = IsFirst(kind),
                     .accumulate = reducer_->taken_outputs().empty(),
                     .outputs = HasOutputs(kind),
                     .scaled = options_.loss_scale.has_value(),
                     .input_gradients = HasInputGradients(kind)});
}

std::vector<MicroBatch>& SessionImpl::CutMicros(const GlobalBatch& global_batch) {
  const auto size = [this](const GlobalBatch& part) { return MicroSamples(FindExtents(part)[0]); };
  CutMicroBatches(global_batch, size, options_.variable_extents > 1, &micros_);
  return micros_;
}

// Drops the least recently used program. Shared memory is bound again when the next program is compiled.
bool SessionImpl::EvictProgram() {
  const auto oldest = std::ranges::min_element(compiled_.ready, {}, [](const auto& ready) { return ready->last_use; });
  if (oldest == compiled_.ready.end()) return false;
  programs_.Release(*(*oldest)->compiled);
  compiled_.ready.erase(oldest);
  backend_.DropUnusedKernels();
  return true;
}

// Returns the bytes of code of an update with another batch size; 0 if all batches have the same size.
size_t SessionImpl::CodeBeside(const CodeEstimate& code) const {
  if (options_.variable_inputs.empty()) return 0;
  return code.bytes() + (micros_.size() > 1 ? code.program_bytes() : 0);
}

absl::StatusOr<CompiledBatchProgram*> SessionImpl::Get(ProgramKind kind, int64_t batch,
                                                       const VariableExtents& extents) {
  constexpr size_t kMaxPrograms = 128;
  const auto found = std::ranges::find_if(compiled_.ready, [&](const auto& ready) {
    return ready->kind == kind && ready->samples == batch && ready->extents == extents;
  });
  CompiledBatchProgram* ready = found != compiled_.ready.end() ? found->get() : nullptr;
  if (ready == nullptr) {
    if (compiled_.ready.size() == kMaxPrograms) EvictProgram();
    ASSIGN_OR_RETURN(ready, Compile(kind, batch, extents));
  }
  ready->last_use = ++compiled_.uses;
  return ready;
}

absl::StatusOr<CompiledBatchProgram*> SessionImpl::Compile(ProgramKind kind, int64_t batch,
                                                           const VariableExtents& extents) {
  const Span span(trace_, Trace::kTraining, "compile");
  const auto begin = std::chrono::steady_clock::now();
  const double compiled = programs_.compile_seconds();
  auto ready = AddProgram(kind, batch, extents);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  compiled_.prepare_seconds += seconds - (programs_.compile_seconds() - compiled);
  return ready;
}

absl::StatusOr<CompiledBatchProgram*> SessionImpl::AddProgram(ProgramKind kind, int64_t batch,
                                                              const VariableExtents& extents) {
  ASSIGN_OR_RETURN(PreparedModel prepared,
                   PrepareProgram(PrepareAt(options_, extents), batch, IsTraining(kind), false));
  RETURN_IF_ERROR(EnsureFrozen(prepared.model, batch, IsTraining(kind)));
  prepared.model.weights.clear();  // the arenas have the values
  if (!options_.plan_only) ReleaseImported();
  RETURN_IF_ERROR(VerifyFrozenBatch(prepared.model.exported_batch));
  if (IsMicro(kind)) RETURN_IF_ERROR(reducer_->AddCollectives(&prepared));
  ASSIGN_OR_RETURN(Graph graph, BuildGraph(kind, batch, prepared.model, prepared.loss));
  ASSIGN_OR_RETURN(graph, shards_->AddGathers(std::move(graph)));
  const Bindings statistics = IsMicro(kind) ? state_.PendingStatistics(IsFirst(kind)) : Bindings();
  const OutputGroups transient_outputs = IsMicro(kind) ? reducer_->taken_outputs() : OutputGroups();
  prepared.model.graph = {};
  ASSIGN_OR_RETURN(auto compiled,
                   programs_.Compile(std::move(graph), statistics, state_.bindings(), batch, transient_outputs));
  compiled->name = kProgramNames[static_cast<int>(kind)];
  BatchFeeds feeds(*compiled, prepared.model.random_key, options_.loss.pairs);
  compiled->program->SetInterruption(reducer_->may_interrupt() ? FindInterruption(kind) : Interruption::kNever);
  compiled_.ready.push_back(std::make_unique<CompiledBatchProgram>(
      CompiledBatchProgram{kind, batch, extents, std::move(compiled), std::move(feeds)}));
  if (const SessionMemory now = MemoryNow(); now.total() > compiled_.most_memory.total()) compiled_.most_memory = now;
  if (IsMicro(kind)) reducer_->Watch(compiled_.ready.back().get());
  return compiled_.ready.back().get();
}

bool SessionImpl::OneProgramStep(int64_t samples, int64_t length) const {
  constexpr size_t kLarge = size_t{1} << 18;  // bytes of an average parameter
  const bool apart = reducer_->takes_gradients() || options_.step_form == StepForm::kMicroAndApply;
  if (samples > MicroSamples(length) || apart) return false;
  return options_.step_form == StepForm::kOneProgram || options_.optimizer.in_backward ||
         static_cast<size_t>(state_.parameter_bytes()) / state_.rules().size() >= kLarge;
}

absl::Status SessionImpl::RunStep(const GlobalBatch& global_batch, int64_t samples) {
  RETURN_IF_ERROR(CountTargets(global_batch, samples));
  for (const ProgramKind kind : StepPrograms()) {
    ASSIGN_OR_RETURN(CompiledBatchProgram * program, Get(kind, samples, FindExtents(global_batch)));
    RETURN_IF_ERROR(FillFeeds(*program, {&global_batch, 0, samples, 0, 0}, Key(0)));
    RETURN_IF_ERROR(programs_.Run(*program->compiled));
  }
  return absl::OkStatus();
}

absl::Status SessionImpl::FillFeeds(CompiledBatchProgram& program, const MicroBatch& micro, const RandomKey& key) {
  const Span span(trace_, Trace::kTraining, "copy");
  RETURN_IF_ERROR(program.feeds.Fill(*micro.part, micro.begin, micro.count, key));
  return program.feeds.FillInverseDenominators(prepared_.loss, loss_denominators_->weights());
}

// A batch whose targets are all ignored has no loss and no
// gradient.
absl::Status SessionImpl::CountTargets(const GlobalBatch& global_batch, int64_t samples) {
  RETURN_IF_ERROR(loss_denominators_->Count(global_batch, samples));
  const std::vector<double>& weights = loss_denominators_->weights();
  for (size_t i = 0; i < weights.size(); ++i)
    RETURN_IF_ERROR(state_.device_scalars().batch_denominator[i].Write(weights[i]));
  return state_.device_scalars().batch_targets.Write(loss_denominators_->targets());
}

absl::Status SessionImpl::RunMicros(const GlobalBatch& global_batch, ProgramKind first,
                                    std::map<std::string, HostTensor>* fetched, int64_t micro) {
  pending_.micros = 0;
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, options_.fixed_batch));
  RETURN_IF_ERROR(CountTargets(global_batch, samples));
  RETURN_IF_ERROR(state_.EnsureGradients());
  reducer_->BeginMicros(micro, &CutMicros(global_batch));
  const auto kind = [&](const MicroBatch& m) { return MicroKind(first, micro == 0 && &m == micros_.data() ? 0 : 1); };
  // Compiles now, while the memory planned for running programs is not in use. Programs of variable sizes may evict
  // each other and are compiled on first use.
  for (const MicroBatch& m : micros_) {
    const VariableExtents extents = FindExtents(*m.part);
    const bool varies = extents[0] != 0 || extents[1] != 0;
    if (!varies) RETURN_IF_ERROR(Get(kind(m), m.count, extents).status());
  }
  for (const MicroBatch& m : micros_) {
    RETURN_IF_ERROR(reducer_->BeginMicro(m, &m == &micros_.back()));
    ASSIGN_OR_RETURN(const CompiledBatchProgram* program, RunMicro(kind(m), m, PartKey(m, micro)));
    RETURN_IF_ERROR(AddOutputs(*program->compiled, m.place, m.count, samples, fetched));
  }
  return absl::OkStatus();
}

// After a failure, the pending sums are never applied.
absl::StatusOr<CompiledBatchProgram*> SessionImpl::RunMicro(ProgramKind kind, const MicroBatch& micro,
                                                            const RandomKey& key) {
  RETURN_IF_ERROR(CheckCancelled());
  ASSIGN_OR_RETURN(CompiledBatchProgram * program, Get(kind, micro.count, FindExtents(*micro.part)));
  RETURN_IF_ERROR(FillFeeds(*program, micro, key));
  const absl::Status ran = programs_.Run(*program->compiled);
  reducer_->EndProgram(program, ran);
  RETURN_IF_ERROR(ran);
  return program;
}

// A weight that is a model output has no batch axis, whatever its first extent.
absl::Status SessionImpl::AddOutputs(const CompiledProgram& program, int64_t begin, int64_t count, int64_t total,
                                     std::map<std::string, HostTensor>* outputs) const {
  for (const auto& [name, region] : program.outputs) {
    ASSIGN_OR_RETURN(HostTensor part, ReadRegion(region));
    if (state_.bindings().contains(name) || count == total) {
      (*outputs)[name] = std::move(part);
    } else {
      RETURN_IF_ERROR(PlaceRows(&(*outputs)[name], part, begin, count, total));
    }
  }
  return absl::OkStatus();
}

// A program may use all memory that earlier programs left, although later ones need more besides its arena. Plan then
// reserves the difference and plans all programs again.
absl::Status SessionImpl::Plan(int64_t samples) {
  constexpr int kMostAttempts = 3;
  const int64_t budget = options_.recompute.memory_budget;
  for (int attempt = 1;; ++attempt) {
    compiled_.planning = true;
    const absl::Status planned = PlanPrograms(samples);
    compiled_.planning = false;
    RETURN_IF_ERROR(planned);
    const int64_t total = memory().total(), excess = total - PlannableBytes(budget);
    if (budget == 0 || excess <= 0) return absl::OkStatus();
    if (attempt == kMostAttempts) return RefuseBudget(budget, BudgetFor(total), options_.micro_batch);
    options_.recompute.reserved += excess;
    programs_.Reserve(options_.recompute.reserved);
    DropPrograms();
  }
}

absl::Status SessionImpl::PlanPrograms(int64_t samples) {
  RETURN_IF_ERROR(reducer_->PlanUpdate(samples));
  const int64_t last = options_.last_batch - options_.last_batch % std::max<int64_t>(1, options_.fixed_batch);
  if (last > 0) RETURN_IF_ERROR(reducer_->PlanUpdate(last));
  return PlanInference();
}

absl::Status SessionImpl::PlanInference() {
  const VariableExtents extents = GreatestExtents(options_);
  // Short batches of a model that is bound to a batch are padded.
  const int64_t fixed = std::max<int64_t>(1, options_.fixed_batch), micro = options_.micro_batch;
  const auto padded = [fixed](int64_t samples) { return (samples + fixed - 1) / fixed * fixed; };
  const int64_t evaluated = padded(options_.evaluated_samples);
  for (const int64_t count : {std::min(evaluated, micro), evaluated < micro ? 0 : evaluated % micro}) {
    if (count > 0) RETURN_IF_ERROR(Get(ProgramKind::kEval, count, extents).status());
  }
  if (evaluated > 0) RETURN_IF_ERROR(EnsureSwap());
  const int64_t predicted = padded(options_.predicted_samples);
  return predicted == 0 ? absl::OkStatus() : Get(ProgramKind::kPredict, predicted, extents).status();
}

absl::Status SessionImpl::PlanMicros(int64_t samples) {
  const VariableExtents extents = GreatestExtents(options_);
  if (OneProgramStep(samples, extents[0])) {
    for (const ProgramKind kind : StepPrograms()) RETURN_IF_ERROR(Get(kind, samples, extents).status());
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(state_.EnsureGradients());
  RETURN_IF_ERROR(EnsureApply());
  const int64_t micro = std::min(samples, options_.micro_batch), rest = samples % micro;
  RETURN_IF_ERROR(Get(ProgramKind::kMicroFirst, micro, extents).status());
  if (samples >= 2 * micro) RETURN_IF_ERROR(Get(ProgramKind::kMicroNext, micro, extents).status());
  return rest == 0 ? absl::OkStatus() : Get(ProgramKind::kMicroNext, rest, extents).status();
}

absl::Status SessionImpl::Update(const GlobalBatch& global_batch, int64_t samples) {
  const bool whole = global_batch.further().empty() && OneProgramStep(samples, FindExtents(global_batch)[0]);
  if (whole) return RunStep(global_batch, samples);
  RETURN_IF_ERROR(reducer_->Begin());
  RETURN_IF_ERROR(reducer_->Finish(reducer_->Accumulate(global_batch, samples)));
  RETURN_IF_ERROR(RunApply());
  return shards_->ExchangeUpdated();
}

absl::Status SessionImpl::RunApply() {
  RETURN_IF_ERROR(EnsureApply());
  return programs_.Run(*compiled_.apply);
}

// Halves the micro-batch after one of `samples` samples did not fit in memory. Drops all programs with their feeds and
// arena; they are compiled again as needed. Pending sums need no reset: the first micro-batch overwrites them.
void SessionImpl::HalveMicroBatch(int64_t samples, int64_t length) {
  for (const auto& ready : compiled_.ready) programs_.Release(*ready->compiled);
  compiled_.ready.clear();
  compiled_.most_memory = {};
  options_.micro_batch = (samples + 1) / 2;
  if (options_.tokens.on()) {
    options_.tokens.tokens = options_.micro_batch * length;
    options_.micro_batch = options_.tokens.MicroSamples(GreatestExtents(options_)[0]);
  }
  ++counters_.oom_retries;
}

absl::Status SessionImpl::Step(const GlobalBatch& global_batch) {
  if (state_.groups().empty()) return Invalid("nothing to train: no weight is trainable");
  CHECK(!averaged_) << "UseAverage(false) must precede a step";
  state_.ReleaseWeights();
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, options_.fixed_batch));
  pending_.micros = 0;
  absl::Status status = Update(global_batch, samples);
  const int64_t length = FindExtents(global_batch)[0];
  const bool may_halve = options_.fixed_batch == 0 && reducer_->may_halve();
  while (absl::IsResourceExhausted(status) && may_halve && std::min(samples, MicroSamples(length)) > 1) {
    HalveMicroBatch(std::min(samples, MicroSamples(length)), length);
    RETURN_IF_ERROR(reducer_->Restart());
    status = Update(global_batch, samples);
  }
  RETURN_IF_ERROR(status);
  ++counters_.attempted;
  programs_.WeightsUpdated();
  return absl::OkStatus();
}

absl::Status SessionImpl::Accumulate(const GlobalBatch& global_batch) {
  if (state_.groups().empty()) return Invalid("nothing to train: no weight is trainable");
  RETURN_IF_ERROR(reducer_->CheckAccumulates());
  CHECK(!averaged_) << "UseAverage(false) must precede Accumulate";
  const int64_t before = pending_.micros;
  RETURN_IF_ERROR(RunMicros(global_batch, ProgramKind::kMicroFirst, nullptr, before));
  RETURN_IF_ERROR(AddPendingTargets(before == 0));
  pending_.micros = before + std::ssize(micros_);
  return absl::OkStatus();
}

// Adds the weights and targets of a batch to the pending ones: the reported loss is the mean over all batches.
absl::Status SessionImpl::AddPendingTargets(bool first) {
  const std::vector<double>& weights = loss_denominators_->weights();
  if (first) pending_.weights.assign(weights.size(), 0), pending_.targets = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    pending_.weights[i] += weights[i];
    RETURN_IF_ERROR(state_.device_scalars().batch_denominator[i].Write(pending_.weights[i]));
  }
  pending_.targets += loss_denominators_->targets();
  return state_.device_scalars().batch_targets.Write(pending_.targets);
}

absl::Status SessionImpl::Apply() {
  if (std::exchange(pending_.micros, 0) == 0) return Invalid("no gradient is accumulated");
  RETURN_IF_ERROR(reducer_->FinishLocal());
  RETURN_IF_ERROR(RunApply());
  ++counters_.attempted;
  programs_.WeightsUpdated();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SessionImpl::SkippedInARow() {
  constexpr int64_t kEvery = 10;
  if (on_host() || counters_.attempted % kEvery == 0) {
    RETURN_IF_ERROR(backend_.Synchronize());
    ASSIGN_OR_RETURN(const double skipped, state_.device_scalars().skipped_in_a_row.Read());
    counters_.skipped_in_a_row = static_cast<int64_t>(skipped);
  }
  return counters_.skipped_in_a_row;
}

absl::StatusOr<std::optional<UpdateValues>> SessionImpl::LastUpdate() {
  if (!on_host()) return std::nullopt;
  return updates_.Last(state_.device_scalars(), prepared_.loss);
}

absl::StatusOr<StepReport> SessionImpl::Report() {
  RETURN_IF_ERROR(backend_.Synchronize());
  return updates_.Report(state_.device_scalars(), prepared_.loss, options_.loss_scale.has_value(), counters_.attempted);
}

void SessionImpl::DropMicroPrograms() {
  for (const auto& ready : compiled_.ready) {
    if (IsMicro(ready->kind)) programs_.Release(*ready->compiled);
  }
  std::erase_if(compiled_.ready, [](const auto& ready) { return IsMicro(ready->kind); });
}

void SessionImpl::DropPrograms() {
  programs_.Clear();
  compiled_.ready.clear();
  compiled_.apply.reset();
  compiled_.swap.reset();
  compiled_.most_memory = {};
}

std::vector<ProgramProfile> SessionImpl::Profile() const {
  std::vector<ProgramProfile> profiles;
  for (const auto& ready : compiled_.ready) {
    const CompiledProgram& compiled = *ready->compiled;
    profiles.push_back({.name = kProgramNames[static_cast<int>(ready->kind)],
                        .samples = ready->samples,
                        .extents = ready->extents,
                        .program = compiled.program.get(),
                        .runs = compiled.runs,
                        .repeated = compiled.repeated,
                        .extra_share = compiled.extra_share});
  }
  if (compiled_.apply != nullptr)
    profiles.push_back({.name = "apply", .program = compiled_.apply->program.get(), .runs = compiled_.apply->runs});
  for (const CompiledProgram* derive : programs_.derive_programs()) {
    profiles.push_back({.name = "derive", .program = derive->program.get(), .runs = derive->runs});
  }
  return profiles;
}

absl::StatusOr<std::map<std::string, HostTensor>> SessionImpl::Weights() {
  RETURN_IF_ERROR(backend_.Synchronize());
  return state_.Weights();
}

absl::Status SessionImpl::EnsureSwap() {
  if (compiled_.swap != nullptr || !has_average() || state_.groups().empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(compiled_.swap, programs_.Compile(BuildSwap(dtype_, state_.groups()), {}, state_.bindings()));
  return absl::OkStatus();
}

absl::Status SessionImpl::UseAverage(bool use) {
  RETURN_IF_ERROR(EnsureSwap());
  if (compiled_.swap == nullptr || use == averaged_) return absl::OkStatus();
  RETURN_IF_ERROR(programs_.Run(*compiled_.swap));
  averaged_ = use;
  programs_.WeightsUpdated();
  return absl::OkStatus();
}

absl::Status SessionImpl::SetWeights(const std::map<std::string, HostTensor>& weights) {
  programs_.WeightsChanged();
  return state_.SetWeights(weights);
}

absl::StatusOr<std::vector<StateTensor>> SessionImpl::State() {
  CHECK(!averaged_) << "UseAverage(false) must precede State";
  RETURN_IF_ERROR(backend_.Synchronize());
  return state_.Tensors(options_.optimizer);
}

absl::Status SessionImpl::GatherState() {
  RETURN_IF_ERROR(shards_->GatherMoments());
  return shards_->GatherWeights();
}

absl::StatusOr<std::vector<StateTensor>> SessionImpl::StateParts() {
  CHECK(divides_moments()) << "the state is not divided";
  RETURN_IF_ERROR(backend_.Synchronize());
  return state_.Parts();
}

SessionCounters SessionImpl::counters() const {
  return {counters_.attempted,        updates_.attempts(),  updates_.skips(),
          counters_.skipped_in_a_row, options_.micro_batch, counters_.oom_retries};
}

absl::Status SessionImpl::Restore(const std::map<std::string, HostTensor>& state, const SessionCounters& counters) {
  RETURN_IF_ERROR(shards_->CheckRestores());
  const std::vector<StateTensor> tensors = state_.Tensors(options_.optimizer);
  for (const StateTensor& tensor : tensors) {
    const auto value = state.find(tensor.name);
    if (value == state.end()) return Invalid("holds no tensor '", tensor.name, "'");
    if (!(value->second.type() == tensor.region.type))
      return Invalid("tensor '", tensor.name, "' is ", ToString(value->second.type()), ", the run has ",
                     ToString(tensor.region.type));
  }
  if (state.size() != tensors.size()) return Invalid("holds ", state.size(), " tensors, the run has ", tensors.size());
  for (const StateTensor& tensor : tensors) RETURN_IF_ERROR(WriteRegion(tensor.region, state.at(tensor.name)));
  return RestoreCounters(counters);
}

absl::Status SessionImpl::RestoreCounters(const SessionCounters& counters) {
  pending_.micros = 0;
  counters_.attempted = counters.attempted;
  updates_.Restore(counters.reported_attempts, counters.reported_skips);
  counters_.skipped_in_a_row = counters.skipped_in_a_row;
  counters_.oom_retries = counters.oom_retries;
  programs_.WeightsChanged();
  return LastUpdate().status();  // what later updates add counts
}

}  // namespace onnxtrain
