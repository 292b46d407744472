#include "optim/parallel/part_session.h"

#include <algorithm>
#include <map>
#include <utility>

#include "frontend/base/log.h"
#include "optim/step/verify_batch_size.h"

namespace onnxtrain {
namespace {

bool IsStatistic(const PreparedModel& whole, const std::string& name) {
  return std::ranges::any_of(whole.model.state_updates, [&](const StateUpdate& u) { return u.state == name; });
}

}  // namespace

std::vector<WholeTensor> ListWholeState(const PreparedModel& whole, const std::function<int(const std::string&)>& owner,
                                        const OptimizerSpec& optimizer, DType dtype) {
  std::vector<WholeTensor> tensors;
  std::map<std::string, Shape> trained;
  for (const WeightDecision& w : whole.weights) {
    const bool statistic = IsStatistic(whole, w.name);
    if (w.trained) trained[w.name] = w.type.shape;
    if (w.trained || statistic)
      tensors.push_back({w.name, true, {w.trained ? dtype : w.type.dtype, w.type.shape}, owner(w.name)});
  }
  for (const auto& [weight, shape] : trained) {
    const int updates = owner(weight);
    if (KeepsAverage(optimizer)) tensors.push_back({MomentName(kAverage, weight), true, {dtype, shape}, updates});
    for (const RuleState& state : FindRule(optimizer)->state) {
      for (const StoredState& stored : state.Stored(optimizer, weight, shape, dtype))
        tensors.push_back({MomentName(stored.state, weight), false, stored.type, updates});
    }
  }
  return tensors;
}

// Runs the whole model with two batches, with weights that are freed again.
absl::Status PartSession::VerifyWhole(int64_t exported) {
  ASSIGN_OR_RETURN(const auto inference, models_->ImportForward(prepare_, exported, false, true));
  if (!inference->random_key.empty()) return absl::OkStatus();  // other numbers for other batches: nothing to compare
  TrainingState weights(backend_, dtype_);
  RETURN_IF_ERROR(weights.AddFrozen(*inference, *models_->model(), true));
  return VerifyBatchSize(*models_, prepare_, exported, backend_, weights.bindings());
}

absl::Status PartSession::CheckBatch() {
  batch_verified_ = true;
  const int64_t exported = options_.plan_only ? 0 : FindExportedBatch();
  if (exported == 0) return absl::OkStatus();
  const absl::Status follows = VerifyWhole(exported);
  ReleaseImported();
  if (!absl::IsInvalidArgument(follows)) return follows;
  if (options_.micro_batch != exported)
    return Invalid("`", flag(), "`: the model follows no batch but ", exported, ": say `micro_batch_size` ", exported);
  options_.fixed_batch = exported;
  return absl::OkStatus();
}

void PartSession::UseRanks(DataParallel* ranks) {
  ranks_ = ranks;
  ranks_->BeginTogether();
  reducer_ = std::make_unique<PartReducer>(this);
}

absl::Status PartSession::Step(const GlobalBatch& global_batch) {
  CHECK(!averaged_) << "UseAverage(false) must precede a step";
  gathered_weights_.reset();
  if (ranks_ == nullptr) return Refuse();
  RETURN_IF_ERROR(Update(global_batch));
  ++counters_.attempted;
  programs_.WeightsUpdated();
  return absl::OkStatus();
}

absl::Status PartSession::CompileNorm(const std::vector<FlatGroup>& groups, const Bindings& overrides) {
  if (groups.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(squared_norm_, programs_.Compile(BuildSquaredNorm(dtype_, groups), overrides, state_.bindings()));
  squared_norm_->name = "norm";
  squared_norm_->program->SetInterruption(Interruption::kNever);
  return absl::OkStatus();
}

absl::StatusOr<double> PartSession::SquaredNorm() {
  if (squared_norm_ == nullptr) return 0;
  RETURN_IF_ERROR(programs_.Run(*squared_norm_));
  return state_.device_scalars().squared_norm.Read();
}

absl::Status PartSession::ApplySums(std::span<const double> sums) {
  RETURN_IF_ERROR(state_.device_scalars().WriteSums(sums));
  RETURN_IF_ERROR(state_.device_scalars().squared_norm.Write(sums.back()));
  return RunApply();
}

absl::Status PartSession::SendTo(std::string_view what, int rank, const Region& region) {
  ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(region));
  transfers_.sent_bytes += static_cast<int64_t>(value.bytes().size());
  return ranks_->ranks().StartSend(what, rank, value.bytes())->Wait();
}

absl::StatusOr<HostTensor> PartSession::ReceiveFrom(std::string_view what, int rank, const Type& type) {
  HostTensor value(type);
  RETURN_IF_ERROR(ranks_->ranks().StartReceive(what, rank, value.mutable_bytes())->Wait());
  return value;
}

std::vector<WholeTensor> PartSession::WholeTensors() const {
  std::vector<WholeTensor> tensors = whole_state_;
  for (const std::string& name : state_.scalar_names())
    tensors.push_back({name, false, state_.bindings().at(name).type, kEveryRank});
  return tensors;
}

absl::Status PartSession::Gather(bool all) {
  RETURN_IF_ERROR(AllocateGathered(all));
  for (const WholeTensor& tensor : WholeTensors()) {
    if (all || tensor.of_model) RETURN_IF_ERROR(GatherTensor(tensor));
  }
  return absl::OkStatus();
}

absl::Status PartSession::AllocateGathered(bool all) {
  absl::Status allocated;
  if (leads()) {
    for (auto* tensors : {&gathered_weights_, &gathered_rest_}) *tensors = std::make_shared<GatheredTensors>();
    for (const WholeTensor& tensor : WholeTensors()) {
      if (!IsLocal(tensor) && (all || tensor.of_model))
        (tensor.of_model ? gathered_weights_ : gathered_rest_)->Add(tensor.name, tensor.type);
    }
    const std::string& folder = ranks_->scratch_folder();
    allocated = gathered_weights_->Allocate(backend_, folder, "gathered weights");
    if (allocated.ok()) allocated = gathered_rest_->Allocate(backend_, folder, "gathered moments");
  }
  return ranks_->Agree(kGathering, allocated);
}

std::optional<Region> PartSession::FindGathered(const std::string& name) const {
  for (const auto* tensors : {&gathered_weights_, &gathered_rest_}) {
    if (*tensors != nullptr && (*tensors)->Has(name)) return (*tensors)->At(name);
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<StateTensor>> PartSession::State() {
  CHECK(!averaged_) << "UseAverage(false) must precede State";
  RETURN_IF_ERROR(backend_.Synchronize());
  std::vector<StateTensor> tensors;
  for (const WholeTensor& tensor : WholeTensors()) {
    const Region region = IsLocal(tensor) ? state_.bindings().at(tensor.name)
                                          : FindGathered(tensor.name).value_or(Region{{}, tensor.type});
    tensors.push_back({tensor.name, tensor.of_model, region});
  }
  return tensors;
}

absl::StatusOr<std::vector<StateTensor>> PartSession::StateParts() {
  CHECK(!averaged_) << "UseAverage(false) must precede StateParts";
  RETURN_IF_ERROR(backend_.Synchronize());
  std::vector<StateTensor> parts;
  for (const WholeTensor& tensor : WholeTensors()) {
    const ElementRuns runs = FindOwnRuns(tensor);
    if (runs.length == 0) continue;
    const Region& own = state_.bindings().at(tensor.name);
    parts.push_back(
        {PartName(tensor.name, runs), tensor.of_model, {own.view, {own.type.dtype, {own.type.elements()}}}});
  }
  return parts;
}

// Returns weights of other ranks only after they have been gathered.
absl::StatusOr<std::map<std::string, HostTensor>> PartSession::Weights() {
  RETURN_IF_ERROR(backend_.Synchronize());
  std::map<std::string, HostTensor> weights;
  const std::string averages = MomentName(kAverage, "");
  const auto has = [&](const std::string& name) {
    return gathered_weights_ != nullptr && gathered_weights_->Has(name);
  };
  for (const WholeTensor& tensor : whole_state_) {
    if (!tensor.of_model || tensor.name.starts_with(averages)) continue;
    if (IsLocal(tensor)) {
      ASSIGN_OR_RETURN(weights[tensor.name], ReadRegion(state_.bindings().at(tensor.name)));
      continue;
    }
    const std::string average = averages + tensor.name, from = averaged_ && has(average) ? average : tensor.name;
    if (has(from)) weights[tensor.name] = GatheredTensors::View(gathered_weights_, from);
  }
  return weights;
}

// Restores on rank 0; Distribute sends the other ranks their parts.
absl::Status PartSession::Restore(const std::map<std::string, HostTensor>& state, const SessionCounters& counters) {
  const std::vector<WholeTensor> tensors = WholeTensors();
  for (const WholeTensor& tensor : tensors) {
    const auto value = state.find(tensor.name);
    if (value == state.end()) return Invalid("holds no tensor '", tensor.name, "'");
    if (!(value->second.type() == tensor.type))
      return Invalid("tensor '", tensor.name, "' is ", ToString(value->second.type()), ", the run has ",
                     ToString(tensor.type));
    RETURN_IF_ERROR(WriteOwn(tensor, value->second));
  }
  if (state.size() != tensors.size()) return Invalid("holds ", state.size(), " tensors, the run has ", tensors.size());
  restored_ = state;
  restores_ = true;
  return RestoreCounters(counters);
}

absl::StatusOr<bool> PartSession::AgreeOnRestoring() {
  int32_t restores = restores_ ? 1 : 0;
  RETURN_IF_ERROR(ranks_->ranks().Broadcast(kScattering, 0, std::as_writable_bytes(std::span(&restores, 1))));
  return restores != 0;
}

}  // namespace onnxtrain
