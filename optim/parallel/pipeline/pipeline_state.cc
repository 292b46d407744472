// Weights that several stages read, and the state of the whole model on rank 0.
#include <algorithm>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "optim/parallel/pipeline/pipeline_session.h"

namespace onnxtrain {
namespace {

constexpr char kShared[] = "exchange of weights that several stages read";

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
  if (mirrors_allocated_) return absl::OkStatus();
  RETURN_IF_ERROR(state_.EnsureGradients());
  for (const Mirror& mirror : mirrors_) {
    if (mirror.stage == stage())
      mirrored_gradients_.Add(GradName(mirror.weight), state_.bindings().at(mirror.weight).type);
  }
  RETURN_IF_ERROR(mirrored_gradients_.Allocate(backend_, "gradients"));
  for (const std::string& name : mirrored_gradients_.names()) mirror_bindings_[name] = mirrored_gradients_.At(name);
  mirrors_allocated_ = true;
  return absl::OkStatus();
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

ElementRuns PipelineSession::FindOwnRuns(const WholeTensor& tensor) const {
  const int writer = tensor.owner == kEveryRank ? 0 : tensor.owner;
  return writer == stage() ? AllElements(tensor.type.elements()) : ElementRuns();
}

absl::Status PipelineSession::GatherTensor(const WholeTensor& tensor) {
  if (tensor.owner == kEveryRank || tensor.owner == 0) return absl::OkStatus();
  if (tensor.owner == stage()) return SendTo(kGathering, 0, state_.bindings().at(tensor.name));
  if (!first()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HostTensor value, ReceiveFrom(kGathering, tensor.owner, tensor.type));
  return WriteRegion(*FindGathered(tensor.name), value);
}

absl::Status PipelineSession::SetWeights(const std::map<std::string, HostTensor>& weights) {
  std::map<std::string, HostTensor> own;
  for (const auto& [name, value] : weights) {
    if (state_.bindings().contains(name)) own.emplace(name, value);
  }
  return SessionImpl::SetWeights(own);
}

absl::Status PipelineSession::WriteOwn(const WholeTensor& tensor, const HostTensor& value) {
  return IsLocal(tensor) ? WriteRegion(state_.bindings().at(tensor.name), value) : absl::OkStatus();
}

absl::Status PipelineSession::ScatterRestored() {
  ASSIGN_OR_RETURN(const bool restores, AgreeOnRestoring());
  if (!restores) return absl::OkStatus();
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
