// Weights that several stages read, and the state of the whole model on rank 0.
#include <algorithm>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/distributed/pipeline/pipeline_session.h"

namespace onnxtrain {
namespace {

constexpr char kShared[] = "exchange of weights that several stages read", kGathering[] = "gathering of the state",
               kScattering[] = "scattering of the state";

void AddTo(HostTensor* sum, const HostTensor& term) {
  const auto add = [&]<typename T>(T) {
    const auto from = term.data<T>();
    auto to = sum->mutable_data<T>();
    for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  };
  sum->dtype() == DType::kFloat64 ? add(double{}) : add(float{});
}

}  // namespace

std::vector<PipelineSession::Mirror> PipelineSession::ListMirrors() const {
  std::vector<Mirror> mirrors;
  for (const WeightDecision& w : whole_weights_) {
    const auto found = placement_.weights.find(w.name);
    if (!w.trained || found == placement_.weights.end()) continue;
    for (size_t i = 1; i < found->second.size(); ++i) mirrors.push_back({w.name, found->second[0], found->second[i]});
  }
  return mirrors;
}

absl::Status PipelineSession::AllocateMirrors() {
  if (scalars_.buffer() != nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(state_.EnsureGradients());
  for (const Mirror& mirror : mirrors_) {
    if (mirror.stage == stage())
      mirrored_gradients_.Add(GradName(mirror.weight), state_.bindings().at(mirror.weight).type);
  }
  RETURN_IF_ERROR(mirrored_gradients_.Allocate(backend_, "gradients"));
  for (const std::string& name : mirrored_gradients_.names()) mirror_bindings_[name] = mirrored_gradients_.At(name);
  scalars_.Add(device_scalar::kSquaredNorm, {DType::kFloat64, {}});
  RETURN_IF_ERROR(scalars_.Allocate(backend_, "counters"));
  scalar_bindings_[device_scalar::kSquaredNorm] = scalars_.At(device_scalar::kSquaredNorm);
  return absl::OkStatus();
}

Bindings PipelineSession::ApplyBindings() const {
  Bindings bindings = SessionImpl::ApplyBindings();
  bindings.insert(scalar_bindings_.begin(), scalar_bindings_.end());
  return bindings;
}

absl::Status PipelineSession::SendTo(std::string_view what, int rank, const Region& region) {
  ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(region));
  transfers_.sent_bytes += static_cast<int64_t>(value.bytes().size());
  return ranks_->ranks().StartSend(what, rank, value.bytes())->Wait();
}

absl::StatusOr<HostTensor> PipelineSession::ReceiveFrom(std::string_view what, int rank, const Type& type) {
  HostTensor value(type);
  RETURN_IF_ERROR(ranks_->ranks().StartReceive(what, rank, value.mutable_bytes())->Wait());
  return value;
}

// The owner of a weight updates it with the gradient of all stages that read it.
absl::Status PipelineSession::SumMirroredGradients() {
  for (const Mirror& mirror : mirrors_) {
    const std::string name = GradName(mirror.weight);
    if (mirror.stage == stage()) RETURN_IF_ERROR(SendTo(kShared, mirror.owner, mirror_bindings_.at(name)));
    if (mirror.owner != stage()) continue;
    const Region& region = state_.bindings().at(name);
    ASSIGN_OR_RETURN(HostTensor sum, ReadRegion(region));
    ASSIGN_OR_RETURN(const HostTensor term, ReceiveFrom(kShared, mirror.stage, region.type));
    AddTo(&sum, term);
    RETURN_IF_ERROR(WriteRegion(region, sum));
  }
  return absl::OkStatus();
}

absl::Status PipelineSession::SendMirroredWeights() {
  if (!std::exchange(mirrors_differ_, false)) return absl::OkStatus();
  for (const Mirror& mirror : mirrors_) {
    if (mirror.owner != stage() && mirror.stage != stage()) continue;
    const Region& region = state_.bindings().at(mirror.weight);
    if (mirror.owner == stage()) {
      RETURN_IF_ERROR(SendTo(kShared, mirror.stage, region));
      continue;
    }
    ASSIGN_OR_RETURN(const HostTensor value, ReceiveFrom(kShared, mirror.owner, region.type));
    RETURN_IF_ERROR(WriteRegion(region, value));
    programs_.WeightsChanged();
  }
  return absl::OkStatus();
}

// Those of weights, and the counters, which every stage has.
std::vector<WholeTensor> PipelineSession::WholeTensors() const {
  std::vector<WholeTensor> tensors = whole_state_;
  for (const std::string& name : state_.scalar_names())
    tensors.push_back({name, false, state_.bindings().at(name).type, kEveryRank});
  return tensors;
}

absl::Status PipelineSession::GatherState() {
  absl::Status allocated;
  const std::vector<WholeTensor> tensors = WholeTensors();
  if (first()) {
    gathered_weights_ = std::make_unique<Arena>(), gathered_rest_ = std::make_unique<Arena>();
    for (const WholeTensor& tensor : tensors) {
      if (!IsLocal(tensor)) (tensor.of_model ? gathered_weights_ : gathered_rest_)->Add(tensor.name, tensor.type);
    }
    allocated = gathered_weights_->Allocate(backend_, "gathered weights");
    if (allocated.ok()) allocated = gathered_rest_->Allocate(backend_, "gathered moments");
  }
  RETURN_IF_ERROR(ranks_->Agree(kGathering, allocated));
  for (const WholeTensor& tensor : tensors) RETURN_IF_ERROR(Gather(tensor));
  return absl::OkStatus();
}

absl::Status PipelineSession::Gather(const WholeTensor& tensor) {
  if (tensor.owner == kEveryRank || tensor.owner == 0) return absl::OkStatus();
  if (tensor.owner == stage()) return SendTo(kGathering, 0, state_.bindings().at(tensor.name));
  if (!first()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HostTensor value, ReceiveFrom(kGathering, tensor.owner, tensor.type));
  return WriteRegion(*FindGathered(tensor.name), value);
}

std::optional<Region> PipelineSession::FindGathered(const std::string& name) const {
  for (const auto* arena : {&gathered_weights_, &gathered_rest_}) {
    if (*arena != nullptr && (*arena)->Has(name)) return (*arena)->At(name);
  }
  return std::nullopt;
}

void PipelineSession::ReleaseGathered() { gathered_rest_.reset(); }

absl::StatusOr<std::vector<StateTensor>> PipelineSession::State() {
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

// Those of other stages only where they are gathered.
absl::StatusOr<std::map<std::string, HostTensor>> PipelineSession::Weights() {
  RETURN_IF_ERROR(backend_.Synchronize());
  std::map<std::string, HostTensor> weights;
  const std::string averages = MomentName(kAverage, "");
  for (const WholeTensor& tensor : whole_state_) {
    if (!tensor.of_model || tensor.name.starts_with(averages)) continue;
    if (IsLocal(tensor)) {
      ASSIGN_OR_RETURN(weights[tensor.name], ReadRegion(state_.bindings().at(tensor.name)));
      continue;
    }
    std::optional<Region> region = averaged_ ? FindGathered(averages + tensor.name) : std::nullopt;
    if (!region) region = FindGathered(tensor.name);
    if (!region) continue;
    ASSIGN_OR_RETURN(weights[tensor.name], ReadRegion(*region));
  }
  return weights;
}

absl::Status PipelineSession::SetWeights(const std::map<std::string, HostTensor>& weights) {
  std::map<std::string, HostTensor> own;
  for (const auto& [name, value] : weights) {
    if (state_.bindings().contains(name)) own.emplace(name, value);
  }
  return SessionImpl::SetWeights(own);
}

// Of rank 0. Distribute gives the other stages what is theirs.
absl::Status PipelineSession::Restore(const std::map<std::string, HostTensor>& state, const SessionCounters& counters) {
  const std::vector<WholeTensor> tensors = WholeTensors();
  for (const WholeTensor& tensor : tensors) {
    const auto value = state.find(tensor.name);
    if (value == state.end()) return Invalid("holds no tensor '", tensor.name, "'");
    if (!(value->second.type() == tensor.type))
      return Invalid("tensor '", tensor.name, "' is ", ToString(value->second.type()), ", the run has ",
                     ToString(tensor.type));
    if (IsLocal(tensor)) RETURN_IF_ERROR(WriteRegion(state_.bindings().at(tensor.name), value->second));
  }
  if (state.size() != tensors.size()) return Invalid("holds ", state.size(), " tensors, the run has ", tensors.size());
  restored_ = state;
  restores_ = true;
  return RestoreCounters(counters);
}

absl::Status PipelineSession::ScatterRestored() {
  int32_t restores = restores_ ? 1 : 0;
  RETURN_IF_ERROR(ranks_->ranks().Broadcast(kScattering, 0, std::as_writable_bytes(std::span(&restores, 1))));
  if (restores == 0) return absl::OkStatus();
  for (const WholeTensor& tensor : WholeTensors()) {
    if (tensor.owner == 0) continue;
    if (tensor.owner == kEveryRank) {
      const Region& region = state_.bindings().at(tensor.name);
      ASSIGN_OR_RETURN(HostTensor value, ReadRegion(region));
      RETURN_IF_ERROR(ranks_->ranks().Broadcast(kScattering, 0, value.mutable_bytes()));
      if (!first()) RETURN_IF_ERROR(WriteRegion(region, value));
    } else if (first()) {
      const auto bytes = restored_.at(tensor.name).bytes();
      RETURN_IF_ERROR(ranks_->ranks().StartSend(kScattering, tensor.owner, bytes)->Wait());
    } else if (tensor.owner == stage()) {
      ASSIGN_OR_RETURN(const HostTensor value, ReceiveFrom(kScattering, 0, tensor.type));
      RETURN_IF_ERROR(WriteRegion(state_.bindings().at(tensor.name), value));
    }
  }
  restored_.clear();
  mirrors_differ_ = true;
  programs_.WeightsChanged();
  return absl::OkStatus();
}

}  // namespace onnxtrain
