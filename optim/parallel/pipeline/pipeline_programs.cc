// Programs, messages and memory of a stage.
#include <algorithm>
#include <utility>

#include "backends/backend.h"
#include "frontend/base/status.h"
#include "optim/parallel/pipeline/pipeline_session.h"

namespace onnxtrain {

void PipelineSession::Layout::Add(const std::string& name, const Type& type) {
  places.push_back({name, bytes, type.bytes()});
  bytes += (type.bytes() + kFeedAlignment - 1) / kFeedAlignment * kFeedAlignment;
}

absl::StatusOr<Stage> PipelineSession::CutAt(ProgramKind kind, int64_t samples, const VariableExtents& extents,
                                             bool values) {
  ASSIGN_OR_RETURN(const PreparedModel whole,
                   models_->Prepare(PrepareAt(options_, extents), samples, IsTraining(kind), values));
  return CutStage(whole, placement_, stage());
}

// Inference graphs may read weights that training graphs do not.
absl::Status PipelineSession::EnsureWeights(const Stage& stage, ProgramKind kind, int64_t samples,
                                            const VariableExtents& extents) {
  if (state_.HasAllWeights(stage.prepared.model)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Stage complete, CutAt(kind, samples, extents, !options_.plan_only));
  return state_.AddFrozen(complete.prepared.model, *models_->model(), !options_.plan_only);
}

absl::StatusOr<PipelineSession::StagePrograms*> PipelineSession::GetPrograms(ProgramKind kind,
                                                                             const MicroBatch& micro) {
  return GetPrograms(kind, micro.count, FindExtents(*micro.part));
}

absl::StatusOr<PipelineSession::StagePrograms*> PipelineSession::GetPrograms(ProgramKind kind, int64_t samples,
                                                                             const VariableExtents& extents) {
  const auto found = std::ranges::find_if(stage_programs_, [&](const auto& programs) {
    return programs->kind == kind && programs->samples == samples && programs->extents == extents;
  });
  if (found == stage_programs_.end()) return CompilePrograms(kind, samples, extents);
  return found->get();
}

absl::StatusOr<std::unique_ptr<CompiledProgram>> PipelineSession::CompilePass(const Graph& graph, const char* name,
                                                                              int64_t samples,
                                                                              const Bindings& overrides) {
  ASSIGN_OR_RETURN(auto compiled, programs_.Compile(graph, overrides, state_.bindings(), samples));
  compiled->name = name;
  compiled->program->SetInterruption(Interruption::kNever);
  return compiled;
}

Bindings PipelineSession::OverridesOf(ProgramKind kind) {
  if (!IsMicro(kind)) return {};
  Bindings bindings = state_.PendingStatistics(IsFirst(kind));
  bindings.insert(mirror_bindings_.begin(), mirror_bindings_.end());
  return bindings;
}

absl::StatusOr<PipelineSession::StagePrograms*> PipelineSession::CompilePrograms(ProgramKind kind, int64_t samples,
                                                                                 const VariableExtents& extents) {
  RETURN_IF_ERROR(AllocateMirrors());
  ASSIGN_OR_RETURN(const Stage cut, CutAt(kind, samples, extents, false));
  RETURN_IF_ERROR(EnsureWeights(cut, kind, samples, extents));
  if (!options_.plan_only) ReleaseImported();
  StageGraphs graphs;
  if (kind == ProgramKind::kEval) {
    ASSIGN_OR_RETURN(graphs.forward, BuildStageEval(cut, options_.loss, samples, metrics_));
  } else {
    const StageMicroOptions options{.first = IsFirst(kind), .scaled = options_.loss_scale.has_value()};
    ASSIGN_OR_RETURN(graphs, BuildStageMicro(cut, options_.loss, samples, options));
  }
  auto programs = std::make_unique<StagePrograms>();
  programs->kind = kind, programs->samples = samples, programs->extents = extents;
  LayOutMessages(cut, programs.get());
  for (const auto& [name, type] : graphs.saved) programs->saved.Add(name, type);
  Bindings overrides = OverridesOf(kind);
  RETURN_IF_ERROR(EnsureSaved(1, programs->saved.bytes));
  for (size_t i = 0; i < graphs.saved.size(); ++i)
    overrides[graphs.saved[i].first] = {{slots_[0].get(), programs->saved.places[i].offset}, graphs.saved[i].second};
  const std::string& key = cut.prepared.model.random_key;
  ASSIGN_OR_RETURN(
      programs->forward,
      CompilePass(graphs.forward, last() ? kProgramNames[static_cast<int>(kind)] : "forward", samples, overrides));
  programs->forward_feeds = std::make_unique<BatchFeeds>(*programs->forward, key);
  if (!graphs.backward.outputs().empty()) {
    ASSIGN_OR_RETURN(programs->backward, CompilePass(graphs.backward, "backward", samples, overrides));
    programs->backward_feeds = std::make_unique<BatchFeeds>(*programs->backward, key);
  }
  stage_programs_.push_back(std::move(programs));
  return stage_programs_.back().get();
}

void PipelineSession::LayOutMessages(const Stage& stage, StagePrograms* programs) const {
  const bool trains = IsMicro(programs->kind);
  for (const Boundary& boundary : stage.in) {
    programs->received.Add(boundary.name, boundary.type);
    if (trains && boundary.differentiable) programs->sent_gradients.Add(GradName(boundary.name), boundary.type);
  }
  for (const Boundary& boundary : stage.out) {
    programs->sent.Add(SentName(boundary), boundary.type);
    if (trains && boundary.differentiable) programs->received_gradients.Add(SeedName(boundary), boundary.type);
  }
}

// Allocates memory for the saved values of `count` micro-batches. Must not be called while one is computed.
absl::Status PipelineSession::EnsureSaved(size_t count, size_t bytes) {
  if (bytes == 0 || (count <= slots_.size() && bytes <= slot_bytes_)) return absl::OkStatus();
  count = std::max(count, slots_.size());
  slot_bytes_ = std::max(bytes, slot_bytes_);
  RETURN_IF_ERROR(backend_.Synchronize());
  slots_.clear();
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(slots_.emplace_back(), AllocateChecked(backend_, slot_bytes_, "activations of a pipeline"));
  }
  return absl::OkStatus();
}

absl::Status PipelineSession::BindSaved(const StagePrograms& programs, int64_t micro) {
  if (programs.saved.places.empty()) return absl::OkStatus();
  Buffer* slot = slots_[micro % std::ssize(slots_)].get();
  for (const Place& place : programs.saved.places) {
    RETURN_IF_ERROR(programs.forward->program->BindOutput(place.name, {slot, place.offset}));
    if (programs.backward != nullptr)
      RETURN_IF_ERROR(programs.backward->program->BindInput(place.name, {slot, place.offset}));
  }
  return absl::OkStatus();
}

// Allocates message and activation memory for the micro-batches of the current batch.
absl::Status PipelineSession::ReserveMemory() {
  const auto kept = static_cast<size_t>(InFlight(stage(), stages(), std::ssize(micro_programs_)));
  const auto reserve = [&](std::unique_ptr<MessageQueue>& queue, size_t slots, const Layout StagePrograms::*layout) {
    size_t bytes = 0;
    for (const StagePrograms* programs : micro_programs_) bytes = std::max(bytes, (programs->*layout).bytes);
    if (options_.plan_only) planned_messages_ += slots * bytes;
    if (queue != nullptr) queue->Reserve(slots, bytes);
  };
  size_t saved = 0;
  for (const StagePrograms* programs : micro_programs_) saved = std::max(saved, programs->saved.bytes);
  reserve(received_, kept + 1, &StagePrograms::received);
  reserve(sent_, kept + 1, &StagePrograms::sent);
  reserve(received_gradients_, kGradientMessages, &StagePrograms::received_gradients);
  reserve(sent_gradients_, kGradientMessages, &StagePrograms::sent_gradients);
  return EnsureSaved(kept, saved);
}

absl::Status PipelineSession::Plan(int64_t samples) {
  const VariableExtents extents = GreatestExtents(options_);
  const int64_t micro = std::min(samples, options_.micro_batch), rest = samples % micro;
  const int64_t micros = (samples + micro - 1) / micro;
  ASSIGN_OR_RETURN(StagePrograms * first, GetPrograms(ProgramKind::kMicroFirst, micro, extents));
  if (samples >= 2 * micro) RETURN_IF_ERROR(GetPrograms(ProgramKind::kMicroNext, micro, extents).status());
  if (rest > 0) RETURN_IF_ERROR(GetPrograms(ProgramKind::kMicroNext, rest, extents).status());
  micro_programs_.assign(micros, first);
  RETURN_IF_ERROR(ReserveMemory());
  return EnsureApply();
}

SessionMemory PipelineSession::memory() const {
  SessionMemory m = SessionImpl::memory();
  m.activations += static_cast<int64_t>(slots_.size() * slot_bytes_);
  m.gradients += static_cast<int64_t>(mirrored_gradients_.size());
  m.feeds += static_cast<int64_t>(planned_messages_);
  // Plans of stages include the memory of updates only.
  for (const WholeTensor& tensor : whole_state_)
    m.host += !options_.plan_only && first() && !IsLocal(tensor) ? static_cast<int64_t>(tensor.type.bytes()) : 0;
  for (const auto* queue : {&received_, &sent_, &received_gradients_, &sent_gradients_})
    m.feeds += *queue != nullptr ? static_cast<int64_t>((*queue)->bytes()) : 0;
  return m;
}

std::vector<ProgramProfile> PipelineSession::Profile() const {
  std::vector<ProgramProfile> profiles = SessionImpl::Profile();
  const auto add = [&](const StagePrograms& programs, const std::unique_ptr<CompiledProgram>& compiled) {
    if (compiled == nullptr) return;
    profiles.push_back({.name = compiled->name,
                        .samples = programs.samples,
                        .extents = programs.extents,
                        .program = compiled->program.get(),
                        .runs = compiled->runs});
  };
  for (const auto& programs : stage_programs_) add(*programs, programs->forward), add(*programs, programs->backward);
  return profiles;
}

}  // namespace onnxtrain
