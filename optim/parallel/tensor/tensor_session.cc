#include "optim/parallel/tensor/tensor_session.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/parallel/shard.h"
#include "optim/parallel/tensor/split_graph.h"
#include "optim/record/telemetry/trace.h"
#include "optim/step/groups.h"
#include "optim/step/program/programs.h"

namespace onnxtrain {

absl::StatusOr<PreparedModel> TensorSession::PrepareTrained() {
  const OptimizerSpec& optimizer = options_.optimizer;
  if (const std::string reader = WholeWeightReader(optimizer); !reader.empty())
    return Invalid(reader, ": reads whole weights, of which a rank of `tensor` ", size(), " has parts");
  if (UpdatesBlocks(optimizer))
    return Invalid("`optimizer` ", optimizer.rule, ": consecutive elements of a weight share a scale, and a rank of ",
                   "`tensor` ", size(), " has columns that cut them");
  options_.step_form = StepForm::kMicroAndApply;
  ASSIGN_OR_RETURN(const PreparedModel whole,
                   models_->Prepare(prepare_, options_.micro_batch, true, !options_.plan_only));
  ASSIGN_OR_RETURN(ModelSplit split, SplitModel(whole, nullptr, rank(), size()));
  splits_ = std::move(split.weights);
  whole_weights_ = whole.weights;
  options_.optimizer.tables = FindTables(whole.model);
  whole_state_ = ListWholeState(
      whole, [](const std::string&) { return kEveryRank; }, options_.optimizer, dtype_);
  ListSplitState(whole);
  return std::move(split.prepared);
}

// Moments that have the shape of their weight are divided like the weight.
void TensorSession::ListSplitState(const PreparedModel& whole) {
  tensor_splits_ = splits_;
  for (const WeightDecision& w : whole.weights) {
    const auto split = splits_.find(w.name);
    if (split == splits_.end() || !w.trained) continue;
    tensor_splits_.emplace(MomentName(kAverage, w.name), split->second);
    for (const RuleState& state : FindRule(options_.optimizer)->state)
      tensor_splits_.emplace(MomentName(state.name, w.name), split->second);
  }
}

absl::StatusOr<PreparedModel> TensorSession::PrepareProgram(const PrepareOptions& options, int64_t batch, bool training,
                                                            bool values) {
  ASSIGN_OR_RETURN(const PreparedModel whole, models_->Prepare(options, batch, training, values));
  ASSIGN_OR_RETURN(ModelSplit split, SplitModel(whole, &splits_, rank(), size()));
  return std::move(split.prepared);
}

absl::Status TensorSession::EnsureFrozen(const ImportedModel& model, int64_t batch, bool training) {
  if (state_.HasAllWeights(model)) return absl::OkStatus();
  const bool load = !options_.plan_only;
  ASSIGN_OR_RETURN(const PreparedModel complete, PrepareProgram(prepare_, batch, training, load));
  return state_.AddFrozen(complete.model, *models_->model(), load);
}

absl::Status TensorSession::Distribute(DataParallel* ranks, ShardLevel shard) {
  if (ranks->size() != size()) return Invalid("`tensor` ", size(), ": runs on as many ranks, not on ", ranks->size());
  if (shard != ShardLevel::kNone)
    return Invalid("`shard` ", ShardName(shard), ": the ranks of `tensor` hold parts of the state already");
  UseRanks(ranks);
  ASSIGN_OR_RETURN(group_, NewGroupOfAll(ranks->ranks(), "tensor"));
  ASSIGN_OR_RETURN(device_group_, backend_.MeetOnDevice(*group_));
  programs_.BindGroup(kTensorGroup, &GroupOfPrograms());
  RETURN_IF_ERROR(ranks_->Agree(kScattering, PrepareUpdates()));
  return ScatterRestored();
}

absl::Status TensorSession::PrepareUpdates() {
  RETURN_IF_ERROR(state_.EnsureGradients());
  RETURN_IF_ERROR(EnsureApply());
  return CompileOwnNorm();
}

// Compiles what can fail on a single rank: within a batch, ranks wait for each other.
absl::Status TensorSession::PrepareBatch(const GlobalBatch& global_batch, ProgramKind first, ProgramKind next) {
  ASSIGN_OR_RETURN(const int64_t samples, CountSamples(global_batch, options_.fixed_batch));
  RETURN_IF_ERROR(CountTargets(global_batch, samples));
  sent_bytes_ = 0;
  for (const MicroBatch& m : CutMicros(global_batch)) {
    const ProgramKind kind = &m == micros_.data() ? first : next;
    ASSIGN_OR_RETURN(CompiledBatchProgram * program, Get(kind, m.count, FindExtents(*m.part)));
    RETURN_IF_ERROR(program->feeds.Fill(*m.part, m.begin, m.count, Key(m.number)));
    if (program->sent_bytes < 0) program->sent_bytes = CountTraffic(program->compiled->program->graph()).bytes;
    sent_bytes_ += program->sent_bytes;
  }
  return absl::OkStatus();
}

absl::Status TensorSession::Update(const GlobalBatch& global_batch) {
  RETURN_IF_ERROR(ranks_->AgreeToBegin(PrepareBatch(global_batch, ProgramKind::kMicroFirst, ProgramKind::kMicroNext)));
  ranks_->BeginUpdate();
  std::vector<double> sums(ExchangedSums());
  const auto compute = [&]() -> absl::Status {
    RETURN_IF_ERROR(RunMicros(global_batch, ProgramKind::kMicroFirst, nullptr));
    RETURN_IF_ERROR(backend_.Synchronize());
    if (last()) RETURN_IF_ERROR(state_.device_scalars().ReadSums(sums));
    ASSIGN_OR_RETURN(sums.back(), SquaredNorm());
    return absl::OkStatus();
  };
  const absl::Status computed = compute();
  if (LostRanks(computed)) return computed;
  ranks_->AddTransfers(sent_bytes_, 0);
  {
    const Span span(trace_, Trace::kTraining, "exchange");
    RETURN_IF_ERROR(ranks_->Exchange(computed, sums));
  }
  return ApplySums(sums);
}

// Returns true if a program failed because ranks do not answer. After any other error, this rank closes the group, so
// that the programs of the others fail at once and all ranks can agree on the error.
bool TensorSession::LostRanks(const absl::Status& computed) {
  if (!computed.ok()) GroupOfPrograms().Close(computed);
  return !computed.ok() && !GroupOfPrograms().closed();
}

// Compiles the squared norm of this rank's parts; only one rank counts gradients that all ranks have.
absl::Status TensorSession::CompileOwnNorm() {
  std::vector<FlatGroup> counted;
  Bindings flat;
  for (const WeightDecision& w : prepared_.weights) {
    if (!w.trained || (!last() && !splits_.contains(w.name))) continue;
    const Region& gradient = state_.bindings().at(GradName(w.name));
    counted.push_back({.name = w.name, .elements = gradient.type.elements()});
    flat[GradName(w.name)] = {gradient.view, {gradient.type.dtype, {gradient.type.elements()}}};
  }
  return CompileNorm(counted, flat);
}

// The last rank knows the metrics; the others compute the same.
absl::StatusOr<Evaluation> TensorSession::Evaluate(const GlobalBatch& global_batch) {
  if (ranks_ == nullptr) return Refuse();
  RETURN_IF_ERROR(ranks_->AgreeToBegin(PrepareBatch(global_batch, ProgramKind::kEval, ProgramKind::kEval)));
  auto evaluated = SessionImpl::Evaluate(global_batch);
  if (LostRanks(evaluated.status())) return evaluated;
  RETURN_IF_ERROR(ranks_->Agree("end of an evaluation", evaluated.status()));
  if (last()) return evaluated;
  Evaluation none;
  none.loss_sums.resize(evaluated->loss_sums.size());
  none.weights.resize(evaluated->weights.size());
  return none;
}

absl::Status TensorSession::SetWeights(const std::map<std::string, HostTensor>& weights) {
  std::map<std::string, HostTensor> own;
  for (const auto& [name, value] : weights) {
    const auto split = splits_.find(name);
    const auto region = state_.bindings().find(name);
    if (region == state_.bindings().end()) continue;
    const bool whole = split != splits_.end() && value.shape() != region->second.type.shape;
    own.emplace(name, whole ? TakePart(value, split->second, rank(), size()) : value);
  }
  return SessionImpl::SetWeights(own);
}

ElementRuns TensorSession::FindOwnRuns(const WholeTensor& tensor) const {
  const auto split = tensor_splits_.find(tensor.name);
  if (split != tensor_splits_.end()) return FindRuns(tensor.type.shape, split->second, rank(), size());
  return leads() ? AllElements(tensor.type.elements()) : ElementRuns();
}

absl::Status TensorSession::GatherTensor(const WholeTensor& tensor) {
  const auto found = tensor_splits_.find(tensor.name);
  if (found == tensor_splits_.end()) return absl::OkStatus();
  const AxisSplit& split = found->second;
  const Region& own = state_.bindings().at(tensor.name);
  if (!leads()) return SendTo(kGathering, 0, own);
  HostTensor whole(tensor.type);
  for (int r = 0; r < size(); ++r) {
    ASSIGN_OR_RETURN(const HostTensor part, r == 0 ? ReadRegion(own) : ReceiveFrom(kGathering, r, own.type));
    PutPart(part, split, r, size(), &whole);
  }
  return WriteRegion(*FindGathered(tensor.name), whole);
}

absl::Status TensorSession::WriteOwn(const WholeTensor& tensor, const HostTensor& value) {
  const auto split = tensor_splits_.find(tensor.name);
  const Region& region = state_.bindings().at(tensor.name);
  return WriteRegion(region, split == tensor_splits_.end() ? value : TakePart(value, split->second, rank(), size()));
}

absl::Status TensorSession::ScatterRestored() {
  ASSIGN_OR_RETURN(const bool restores, AgreeOnRestoring());
  if (!restores) return absl::OkStatus();
  for (const WholeTensor& tensor : WholeTensors()) {
    HostTensor value =
        leads() && restored_.contains(tensor.name) ? restored_.at(tensor.name).Clone() : HostTensor(tensor.type);
    RETURN_IF_ERROR(ranks_->ranks().Broadcast(kScattering, 0, value.mutable_bytes()));
    RETURN_IF_ERROR(WriteOwn(tensor, value));
  }
  restored_.clear();
  programs_.WeightsChanged();
  return absl::OkStatus();
}

namespace {

// Counts the runs of an update over the micro programs that the session has compiled.
void AddTraffic(const Session& session, int64_t micro, int64_t samples, PartPlan* plan) {
  const int64_t whole = samples / micro, rest = samples % micro;
  const auto add = [&](std::string_view name, int64_t size, int64_t runs) {
    if (runs == 0) return;
    for (const ProgramProfile& profile : session.Profile()) {
      if (profile.name != name || profile.samples != size) continue;
      const ProgramTraffic traffic = CountTraffic(profile.program->graph());
      plan->exchanges += runs * traffic.exchanges;
      plan->sent_bytes += runs * traffic.bytes;
      return;
    }
  };
  add(kProgramNames[static_cast<int>(ProgramKind::kMicroFirst)], micro, 1);
  add(kProgramNames[static_cast<int>(ProgramKind::kMicroNext)], micro, whole - 1);
  add(kProgramNames[static_cast<int>(ProgramKind::kMicroNext)], rest, rest > 0 ? 1 : 0);
}

}  // namespace

absl::StatusOr<PartPlan> PlanPart(const std::shared_ptr<PreparedModels>& models, Backend& backend,
                                  SessionOptions options, int64_t samples) {
  options.plan_only = true;
  options.tensor.index = 0;
  ASSIGN_OR_RETURN(const PreparedModel whole,
                   models->Prepare(MakePrepareOptions(options), options.micro_batch, true, false));
  ASSIGN_OR_RETURN(const ModelSplit split, SplitModel(whole, nullptr, 0, options.tensor.count));
  PartPlan plan;
  for (const WeightDecision& w : whole.weights) {
    if (!w.trained) continue;
    const bool divided = split.weights.contains(w.name);
    ++plan.trained_weights, plan.trained_elements += w.type.elements();
    plan.divided_weights += divided ? 1 : 0, plan.divided_elements += divided ? w.type.elements() : 0;
  }
  const int64_t micro = std::min(samples, options.micro_batch);
  ASSIGN_OR_RETURN(const auto session, Session::Create(models, &backend, std::move(options)));
  RETURN_IF_ERROR(session->Plan(samples));
  plan.memory = session->memory();
  AddTraffic(*session, micro, samples, &plan);
  return plan;
}

}  // namespace onnxtrain
