#include "optim/parallel/pipeline/pipeline_session.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "frontend/base/cancellation.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/parallel/pipeline/stage.h"
#include "optim/parallel/shard.h"
#include "optim/record/telemetry/trace.h"
#include "optim/step/groups.h"

namespace onnxtrain {
namespace {

constexpr char kActivations[] = "activations of a pipeline", kGradients[] = "gradients of a pipeline";

// Keeps the first error of this rank, which continues to send the messages that other ranks wait for.
void Keep(absl::Status status, absl::Status* first) {
  if (first->ok()) *first = std::move(status);
}

}  // namespace

absl::StatusOr<PreparedModel> PipelineSession::PrepareTrained() {
  ASSIGN_OR_RETURN(const PreparedModel whole,
                   models_->Prepare(prepare_, options_.micro_batch, true, !options_.plan_only));
  const LossGraph reduced = ReduceToLoss(whole);
  ASSIGN_OR_RETURN(placement_, PlaceWeights(reduced.graph, reduced.results, stages()));
  whole_weights_ = whole.weights;
  options_.optimizer.tables = FindTables(whole.model);
  whole_state_ = ListWholeState(
      whole, [this](const std::string& weight) { return placement_.Owner(weight); }, options_.optimizer, dtype_);
  mirrors_ = ListMirrors();
  ASSIGN_OR_RETURN(Stage cut, CutStage(whole, placement_, stage()));
  return std::move(cut.prepared);
}

absl::Status PipelineSession::Distribute(DataParallel* ranks, ShardLevel shard) {
  if (ranks->size() != stages())
    return Invalid("`pipeline` ", stages(), ": runs on as many ranks, not on ", ranks->size());
  if (shard != ShardLevel::kNone)
    return Invalid("`shard` ", ShardName(shard), ": the ranks of a pipeline hold their own moments already");
  UseRanks(ranks);
  RETURN_IF_ERROR(ranks_->Agree(kScattering, PrepareUpdates()));
  const auto queue = [&](const char* what, int peer) {
    return peer < 0 || peer >= stages() ? nullptr
                                        : std::make_unique<MessageQueue>(&ranks->ranks(), what, peer, &transfers_);
  };
  received_ = queue(kActivations, stage() - 1);
  sent_gradients_ = queue(kGradients, stage() - 1);
  sent_ = queue(kActivations, stage() + 1);
  received_gradients_ = queue(kGradients, stage() + 1);
  return ScatterRestored();
}

absl::Status PipelineSession::PrepareUpdates() {
  RETURN_IF_ERROR(AllocateMirrors());
  RETURN_IF_ERROR(EnsureApply());
  return CompileNorm(state_.groups(), {});
}

// Prepares what can fail on a single rank.
absl::Status PipelineSession::PrepareUpdate(const GlobalBatch& global_batch) {
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, options_.fixed_batch));
  RETURN_IF_ERROR(CountTargets(global_batch, samples));
  micro_programs_.clear();
  for (const MicroBatch& m : CutMicros(global_batch)) {
    const ProgramKind kind = MicroKind(ProgramKind::kMicroFirst, m.number);
    ASSIGN_OR_RETURN(StagePrograms * programs, GetPrograms(kind, m));
    micro_programs_.push_back(programs);
  }
  return ReserveMemory();
}

absl::Status PipelineSession::Update(const GlobalBatch& global_batch) {
  RETURN_IF_ERROR(ranks_->AgreeToBegin(PrepareUpdate(global_batch)));
  RETURN_IF_ERROR(SendMirroredWeights());
  ranks_->BeginUpdate();
  std::vector<double> sums(ExchangedSums());
  const absl::Status computed = Compute(sums);
  if (absl::IsUnavailable(computed)) return computed;
  ranks_->AddTransfers(std::exchange(transfers_.sent_bytes, 0), std::exchange(transfers_.seconds, 0));
  {
    const Span span(trace_, Trace::kTraining, "exchange");
    RETURN_IF_ERROR(ranks_->Exchange(computed, sums));
  }
  mirrors_differ_ = true;
  return ApplySums(sums);
}

// Stores the losses and correct predictions, which the last stage knows, and the squared norm of the own gradients.
absl::Status PipelineSession::Compute(std::span<double> sums) {
  absl::Status computed;
  const std::vector<PassOfMicro> passes = OneForwardOneBackward(stage(), stages(), std::ssize(micro_programs_));
  for (const PassOfMicro& pass : passes) {
    const StagePrograms& programs = *micro_programs_[pass.micro];
    RETURN_IF_ERROR(pass.backward ? Backward(pass.micro, programs, &computed)
                                  : Forward(pass.micro, programs, &computed));
  }
  RETURN_IF_ERROR(FinishQueues());
  RETURN_IF_ERROR(SumMirroredGradients());
  RETURN_IF_ERROR(computed);
  RETURN_IF_ERROR(backend_.Synchronize());
  if (last()) RETURN_IF_ERROR(state_.device_scalars().ReadSums(sums));
  ASSIGN_OR_RETURN(sums.back(), SquaredNorm());
  return absl::OkStatus();
}

// Fails only if other ranks do not answer; other errors go to *computed.
absl::Status PipelineSession::Forward(int64_t micro, const StagePrograms& programs, absl::Status* computed) {
  const bool trains = IsMicro(programs.kind);
  if (received_ != nullptr) {
    received_->Receive(micro, programs.received.bytes);
    if (micro + 1 < std::ssize(micro_programs_))
      received_->Receive(micro + 1, micro_programs_[micro + 1]->received.bytes);
    RETURN_IF_ERROR(received_->Wait(micro));
  }
  if (sent_ != nullptr) RETURN_IF_ERROR(sent_->Wait(micro));
  if (last() && trains && sent_gradients_ != nullptr) RETURN_IF_ERROR(sent_gradients_->Wait(micro));
  if (computed->ok()) Keep(ComputeForward(micro, programs), computed);
  if (sent_ != nullptr) sent_->Send(micro, programs.sent.bytes);
  return absl::OkStatus();
}

absl::Status PipelineSession::ComputeForward(int64_t micro, const StagePrograms& programs) {
  RETURN_IF_ERROR(CheckCancelled());
  const MicroBatch& m = micros_[micro];
  CompiledProgram& program = *programs.forward;
  {
    const Span span(trace_, Trace::kTraining, "copy");
    RETURN_IF_ERROR(programs.forward_feeds->Fill(*m.part, m.begin, m.count, PartKey(m)));
    if (last())
      RETURN_IF_ERROR(programs.forward_feeds->FillInverseDenominators(prepared_.loss, loss_denominators_->weights()));
    if (received_ != nullptr) RETURN_IF_ERROR(Feed(program, programs.received, received_->Message(micro)));
  }
  RETURN_IF_ERROR(BindSaved(programs, micro));
  RETURN_IF_ERROR(programs_.Run(program));
  if (sent_ != nullptr) RETURN_IF_ERROR(ReadOutputs(program, programs.sent, sent_->Message(micro)));
  const bool backward_too = last() && IsMicro(programs.kind) && sent_gradients_ != nullptr;
  return backward_too ? ReadOutputs(program, programs.sent_gradients, sent_gradients_->Message(micro))
                      : absl::OkStatus();
}

absl::Status PipelineSession::Backward(int64_t micro, const StagePrograms& programs, absl::Status* computed) {
  if (received_gradients_ != nullptr) {
    received_gradients_->Receive(micro, programs.received_gradients.bytes);
    if (micro + 1 < std::ssize(micro_programs_))
      received_gradients_->Receive(micro + 1, micro_programs_[micro + 1]->received_gradients.bytes);
    RETURN_IF_ERROR(received_gradients_->Wait(micro));
  }
  if (!last()) {
    if (sent_gradients_ != nullptr) RETURN_IF_ERROR(sent_gradients_->Wait(micro));
    if (computed->ok() && programs.backward != nullptr) Keep(ComputeBackward(micro, programs), computed);
  }
  if (sent_gradients_ != nullptr) sent_gradients_->Send(micro, programs.sent_gradients.bytes);
  return absl::OkStatus();
}

absl::Status PipelineSession::ComputeBackward(int64_t micro, const StagePrograms& programs) {
  RETURN_IF_ERROR(CheckCancelled());
  const MicroBatch& m = micros_[micro];
  CompiledProgram& program = *programs.backward;
  RETURN_IF_ERROR(programs.backward_feeds->Fill(*m.part, m.begin, m.count, PartKey(m)));
  if (received_ != nullptr) RETURN_IF_ERROR(Feed(program, programs.received, received_->Message(micro)));
  RETURN_IF_ERROR(Feed(program, programs.received_gradients, received_gradients_->Message(micro)));
  RETURN_IF_ERROR(BindSaved(programs, micro));
  RETURN_IF_ERROR(programs_.Run(program));
  if (sent_gradients_ == nullptr) return absl::OkStatus();
  return ReadOutputs(program, programs.sent_gradients, sent_gradients_->Message(micro));
}

absl::Status PipelineSession::Feed(const CompiledProgram& program, const Layout& layout,
                                   std::span<const std::byte> message) {
  const Graph& graph = program.program->graph();
  for (const Place& place : layout.places) {
    const auto feed = program.feeds.find(place.name);
    if (feed == program.feeds.end()) continue;  // read by the other pass
    const auto bytes = message.subspan(place.offset, place.bytes);
    const size_t input = graph.FindInput(place.name) - graph.inputs().data();
    if (program.program->ReadInPlace(input, bytes.data())) continue;
    RETURN_IF_ERROR(feed->second.view.buffer->Write(feed->second.view.offset, bytes));
  }
  return absl::OkStatus();
}

absl::Status PipelineSession::ReadOutputs(const CompiledProgram& program, const Layout& layout,
                                          std::span<std::byte> message) {
  for (const Place& place : layout.places) {
    const Region& region = program.outputs.at(place.name);
    RETURN_IF_ERROR(region.view.buffer->Read(region.view.offset, message.subspan(place.offset, place.bytes)));
  }
  return absl::OkStatus();
}

absl::Status PipelineSession::FinishQueues() {
  for (MessageQueue* queue : {received_.get(), sent_.get(), received_gradients_.get(), sent_gradients_.get()}) {
    if (queue != nullptr) RETURN_IF_ERROR(queue->Finish());
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> PipelineSession::Evaluate(const GlobalBatch& global_batch) {
  if (ranks_ == nullptr) return Refuse();
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, options_.fixed_batch));
  const auto prepare = [&]() -> absl::Status {
    micro_programs_.clear();
    for (const MicroBatch& m : CutMicros(global_batch)) {
      ASSIGN_OR_RETURN(StagePrograms * programs, GetPrograms(ProgramKind::kEval, m));
      micro_programs_.push_back(programs);
    }
    RETURN_IF_ERROR(ReserveMemory());
    RETURN_IF_ERROR(WriteScalars(state_.device_scalars().batch_loss, 0));
    return state_.device_scalars().batch_correct.Write(0);
  };
  RETURN_IF_ERROR(ranks_->AgreeToBegin(prepare()));
  RETURN_IF_ERROR(SendMirroredWeights());
  Evaluation e;
  absl::Status computed;
  for (int64_t i = 0; i < std::ssize(micro_programs_); ++i) {
    RETURN_IF_ERROR(Forward(i, *micro_programs_[i], &computed));
    if (last() && computed.ok()) Keep(AddMetrics(*micro_programs_[i]->forward, &e.metrics), &computed);
  }
  RETURN_IF_ERROR(FinishQueues());
  transfers_ = {};  // updates are counted alone
  RETURN_IF_ERROR(ranks_->Agree("end of an evaluation", computed));
  RETURN_IF_ERROR(backend_.Synchronize());
  RETURN_IF_ERROR(ReadScalars(state_.device_scalars().batch_loss, &e.loss_sums));
  e.weights.resize(e.loss_sums.size());
  if (!last()) return e;
  ASSIGN_OR_RETURN(e.correct, state_.device_scalars().batch_correct.Read());
  RETURN_IF_ERROR(loss_denominators_->Count(global_batch, samples));
  e.weights = loss_denominators_->weights();
  e.targets = loss_denominators_->targets();
  return e;
}

absl::Status PipelineSession::UseAverage(bool use) {
  mirrors_differ_ |= has_average();
  return SessionImpl::UseAverage(use);
}

namespace {

int64_t MessageBytes(const Boundary& boundary) {
  return static_cast<int64_t>((boundary.type.bytes() + kFeedAlignment - 1) / kFeedAlignment * kFeedAlignment);
}

// Returns the bytes that a stage sends for one micro-batch: activations forward, gradients back.
int64_t MicroBytes(const Stage& stage) {
  int64_t bytes = 0;
  for (const Boundary& boundary : stage.out) bytes += MessageBytes(boundary);
  for (const Boundary& boundary : stage.in) bytes += boundary.differentiable ? MessageBytes(boundary) : 0;
  return bytes;
}

// Returns the bytes that a stage sends for weights that several stages read: later stages send the gradient, the first
// one sends the updated weight.
int64_t SharedBytes(const PreparedModel& whole, const Placement& placement, int stage) {
  int64_t bytes = 0;
  for (const WeightDecision& w : whole.weights) {
    const auto found = placement.weights.find(w.name);
    if (!w.trained || found == placement.weights.end() || !placement.Holds(w.name, stage)) continue;
    const int64_t messages = placement.Owner(w.name) == stage ? std::ssize(found->second) - 1 : 1;
    bytes += messages * static_cast<int64_t>(w.type.bytes());
  }
  return bytes;
}

class Planner {
 public:
  Planner(PreparedModels& models, const SessionOptions& options) : models_(models), options_(options) {}

  absl::Status Place() {
    ASSIGN_OR_RETURN(whole_, PrepareFor(options_.micro_batch));
    const LossGraph reduced = ReduceToLoss(whole_);
    ASSIGN_OR_RETURN(placement_, PlaceWeights(reduced.graph, reduced.results, options_.pipeline.count));
    return absl::OkStatus();
  }

  double TimeShare(int stage) const {
    return placement_.seconds[stage] / std::accumulate(placement_.seconds.begin(), placement_.seconds.end(), 0.0);
  }

  absl::StatusOr<int64_t> SentBytes(int stage, int64_t samples) {
    const int64_t micro = std::min(samples, options_.micro_batch);
    int64_t bytes = SharedBytes(whole_, placement_, stage);
    for (const auto& [size, count] : {std::pair(micro, samples / micro), {samples % micro, int64_t{1}}}) {
      if (size == 0) continue;
      ASSIGN_OR_RETURN(const PreparedModel part, PrepareFor(size));
      ASSIGN_OR_RETURN(const Stage cut, CutStage(part, placement_, stage));
      bytes += count * MicroBytes(cut);
    }
    return bytes;
  }

 private:
  absl::StatusOr<PreparedModel> PrepareFor(int64_t samples) {
    return models_.Prepare(MakePrepareOptions(options_), samples, true, false);
  }

  PreparedModels& models_;
  const SessionOptions& options_;
  PreparedModel whole_;
  Placement placement_;
};

}  // namespace

absl::StatusOr<std::vector<StagePlan>> PlanStages(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                                  SessionOptions options, int64_t samples) {
  options.plan_only = true;
  Planner planner(*models, options);
  RETURN_IF_ERROR(planner.Place());
  std::vector<StagePlan> plans;
  for (int stage = 0; stage < options.pipeline.count; ++stage) {
    options.pipeline.index = stage;
    ASSIGN_OR_RETURN(const auto session, Session::Create(models, &backend, options));
    RETURN_IF_ERROR(session->Plan(samples));
    StagePlan& plan = plans.emplace_back();
    plan.time_share = planner.TimeShare(stage);
    plan.memory = session->memory();
    ASSIGN_OR_RETURN(plan.sent_bytes, planner.SentBytes(stage, samples));
  }
  return plans;
}

}  // namespace onnxtrain
