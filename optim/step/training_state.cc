#include "optim/step/training_state.h"

#include <algorithm>
#include <utility>

#include "frontend/base/status.h"
#include "frontend/onnx/read/file.h"
#include "frontend/ops/dynamic_code.h"
#include "optim/step/state.h"

namespace onnxtrain {

int64_t StateBytes(const OptimizerSpec& optimizer, const std::vector<WeightDecision>& weights) {
  const OptimizerRule* rule = FindRule(optimizer);
  int64_t bytes = 0;
  for (const WeightDecision& w : weights) {
    if (!w.trained) continue;
    const DType stored_as = StoredType(optimizer, w.type.shape, w.type.dtype);
    bytes += static_cast<int64_t>(Type{stored_as, w.type.shape}.bytes());
    if (KeepsAverage(optimizer)) bytes += static_cast<int64_t>(w.type.bytes());
    for (const RuleState& state : rule->state) {
      for (const StoredState& stored : state.Stored(optimizer, w.name, w.type.shape, w.type.dtype))
        bytes += static_cast<int64_t>(stored.type.bytes());
    }
  }
  return bytes;
}

absl::Status TrainingState::LayOut(const OptimizerSpec& optimizer, const PreparedModel& prepared, bool scaled_loss) {
  prepared_ = &prepared;
  optimizer_ = optimizer;
  updates_blocks_ = UpdatesBlocks(optimizer);
  ASSIGN_OR_RETURN(members_, GroupWeights(optimizer, prepared.weights));
  LayOutParameters(optimizer);
  for (const StateUpdate& update : prepared.model.state_updates) {
    const Graph& graph = prepared.model.graph;
    const Type& type = graph.type(graph.FindInput(update.state)->value);
    statistics_.Add(update.state, type);
    pending_.Add(update.state, type);
  }
  for (Arena* arena : {&params_, &statistics_, &pending_}) RETURN_IF_ERROR(arena->Allocate(backend_, "weights"));
  for (const RuleState& state : FindRule(optimizer)->state) {
    ASSIGN_OR_RETURN(moments_.emplace_back(), LayOutMoment(optimizer, state, &bindings_));
  }
  if (KeepsAverage(optimizer)) {
    ASSIGN_OR_RETURN(moments_.emplace_back(), LayOutMoment(optimizer, {kAverage}, &bindings_));
  }
  Expose(params_, &bindings_);
  Expose(statistics_, &bindings_);
  for (const WeightGroup& g : members_) {
    if (!params_.Has(ParamName(g.name))) continue;
    ExposeMembers(
        g, params_, ParamName(g.name), [](const std::string& w) { return w; }, &bindings_);
  }
  return device_scalars_.LayOut(backend_, dtype_, prepared.loss.terms.size(), scaled_loss, &bindings_);
}

// A flat tensor spans the group's parameters with the padding between them; the parameters are slices of it, or tensors
// of their own if their types differ.
void TrainingState::LayOutParameters(const OptimizerSpec& optimizer) {
  for (const WeightGroup& members : members_) {
    FlatGroup group{.name = members.name, .rule = members.rule};
    for (const WeightDecision* w : members.members) {
      rules_[w->name] = members.rule;
      group.elements += padded_elements(w->type.shape);
      group.members.emplace_back(w->name, w->type.shape);
    }
    const Type flat{dtype_, {group.elements}};
    if (optimizer.weight_dtype == DType::kFloat32) {
      params_.Add(ParamName(group.name), flat);
    } else {
      for (const auto& [name, shape] : group.members) params_.Add(name, {StoredType(optimizer, shape, dtype_), shape});
    }
    grads_.Add(GradName(group.name), flat);
    groups_.push_back(std::move(group));
  }
}

// Moments shaped like the parameters are laid out like them; others are one tensor per parameter.
absl::StatusOr<std::unique_ptr<Arena>> TrainingState::LayOutMoment(const OptimizerSpec& optimizer,
                                                                   const RuleState& state, Bindings* bindings) const {
  auto arena = std::make_unique<Arena>();
  for (const FlatGroup& g : groups_) {
    if (state.is_flat()) arena->Add(MomentName(state.name, g.name), {dtype_, {g.elements}});
    if (state.is_flat()) continue;
    for (const auto& [name, shape] : g.members) {
      for (const StoredState& stored : state.Stored(optimizer, name, shape, dtype_))
        arena->Add(MomentName(stored.state, name), stored.type);
    }
  }
  RETURN_IF_ERROR(arena->Allocate(backend_, "moments"));
  Expose(*arena, bindings);
  for (const WeightGroup& g : members_) {
    if (!state.is_flat()) break;
    ExposeMembers(
        g, *arena, MomentName(state.name, g.name), [&](const std::string& w) { return MomentName(state.name, w); },
        bindings);
  }
  return arena;
}

void TrainingState::Expose(const Arena& arena, Bindings* bindings) const {
  for (const std::string& name : arena.names()) (*bindings)[name] = arena.At(name);
}

// Binds the slices of a flat tensor, one per parameter of the group.
void TrainingState::ExposeMembers(const WeightGroup& group, const Arena& arena, const std::string& flat,
                                  const std::function<std::string(const std::string&)>& name,
                                  Bindings* bindings) const {
  size_t offset = arena.At(flat).view.offset;
  for (const WeightDecision* w : group.members) {
    (*bindings)[name(w->name)] = {{arena.buffer(), offset}, {dtype_, w->type.shape}};
    offset += padded_elements(w->type.shape) * DTypeSize(dtype_);
  }
}

bool TrainingState::HasAllWeights(const ImportedModel& model) const {
  return std::ranges::all_of(model.weights, [&](const ImportedWeight& w) {
    return bindings_.contains(w.name) || divided_weights_.contains(w.name);
  });
}

absl::Status TrainingState::AddFrozen(const ImportedModel& model, const OnnxModel& file, bool load) {
  auto arena = std::make_unique<Arena>();
  std::vector<const ImportedWeight*> copied;
  for (const ImportedWeight& w : model.weights) {
    if (bindings_.contains(w.name) || divided_weights_.contains(w.name)) continue;
    const GraphInput& input = *model.graph.FindInput(w.name);
    const Type& type = model.graph.type(input.value);
    if (input.kind == InputKind::kFrozen) {
      frozen_.names.insert(w.name);
      if (BorrowFrozen(w, type, file)) continue;
    }
    arena->Add(w.name, type);
    copied.push_back(&w);
  }
  RETURN_IF_ERROR(arena->Allocate(backend_, "frozen weights"));
  Expose(*arena, &bindings_);
  for (const ImportedWeight* w : copied) {
    if (!load) continue;
    RETURN_IF_ERROR(WriteRegion(bindings_.at(w->name), w->value));
    ReleaseMappedPages(w->value.bytes());
  }
  frozen_.copied.push_back(std::move(arena));
  return absl::OkStatus();
}

// Binds a weight to its tensor in host memory. Returns false if there is none of this type that the backend can read.
bool TrainingState::BorrowFrozen(const ImportedWeight& weight, const Type& type, const OnnxModel& file) {
  const HostTensor* stored = file.Initializer(weight.name);
  const bool as_stored = stored != nullptr && stored->type() == type;
  const HostTensor& tensor = as_stored ? *stored : weight.value;
  std::unique_ptr<Buffer> buffer = tensor.type() == type ? backend_.Borrow(tensor) : nullptr;
  if (buffer == nullptr) return false;
  bindings_[weight.name] = {{buffer.get(), 0}, type};
  frozen_.borrowed.push_back(std::move(buffer));
  const auto bytes = static_cast<int64_t>(type.bytes());
  if (IsInMappedFile(tensor.bytes().data())) {
    frozen_.mapped += bytes;
  } else if (!as_stored) {  // OnnxModel::HeapBytes counts stored tensors
    frozen_.imported += bytes;
  }
  return true;
}

absl::Status TrainingState::EnsureGradients() {
  if (grads_.buffer() != nullptr || groups_.empty() || divides_gradients_) return absl::OkStatus();
  RETURN_IF_ERROR(grads_.Allocate(backend_, "gradients"));
  Expose(grads_, &bindings_);
  for (const WeightGroup& g : members_)
    ExposeMembers(
        g, grads_, GradName(g.name), [](const std::string& w) { return GradName(w); }, &bindings_);
  return absl::OkStatus();
}

int64_t TrainingState::slice_multiple() const {
  constexpr int64_t kMultiple = 64;  // of SliceElements
  return updates_blocks_ ? kDynamicBlock : kMultiple;
}

int64_t TrainingState::padded_elements(const Shape& weight) const {
  const auto cache_line = static_cast<int64_t>(64 / DTypeSize(dtype_));
  const int64_t multiple = updates_blocks_ ? kDynamicBlock : cache_line;
  return (NumElements(weight) + multiple - 1) / multiple * multiple;
}

std::vector<std::span<std::byte>> TrainingState::PendingOnHost() const {
  const auto memory = [](Buffer* buffer, size_t offset, size_t size) {
    return std::span(static_cast<std::byte*>(buffer->data()) + offset, size);
  };
  std::vector<std::span<std::byte>> pending = {memory(grads_.buffer(), 0, grads_.size())};
  if (statistics_elements() > 0) pending.push_back(memory(pending_.buffer(), 0, pending_.size()));
  std::vector<std::string> scalars = {device_scalar::kBatchCorrect};
  for (size_t i = 0; i < device_scalars_.batch_loss.size(); ++i)
    scalars.push_back(TermName(device_scalar::kBatchLoss, i));
  for (const std::string& name : scalars) {
    const Region& region = bindings_.at(name);
    pending.push_back(memory(region.view.buffer, region.view.offset, region.type.bytes()));
  }
  return pending;
}

absl::Status TrainingState::ClearPending() {
  if (grads_.buffer() != nullptr) {
    const std::vector<std::byte> zeros(grads_.size());
    RETURN_IF_ERROR(grads_.buffer()->Write(0, zeros));
  }
  RETURN_IF_ERROR(WriteScalars(device_scalars_.batch_loss, 0));
  return device_scalars_.batch_correct.Write(0);
}

absl::Status TrainingState::SetWeights(const std::map<std::string, HostTensor>& weights) {
  for (const auto& [name, value] : weights) {
    if (IsFrozen(name)) return Invalid("weight '", name, "' is frozen");
    const bool divided = divided_weights_.contains(name);
    auto it = bindings_.find(name);
    if (it == bindings_.end() && !divided) return Invalid("the model has no weight named '", name, "'");
    Type type = divided ? whole_types_.at(name) : it->second.type;
    const bool rounds = type.dtype == DType::kBFloat16 && rules_.contains(name);
    if (rounds) type.dtype = dtype_;
    if (!(type == value.type()))
      return Invalid("weight '", name, "' has type ", ToString(type), ", got ", ToString(value.type()));
    const HostTensor& stored = rounds ? value.CastTo(DType::kBFloat16) : value;
    RETURN_IF_ERROR(divided ? WriteColumns(name, stored) : WriteRegion(it->second, stored));
    ReleaseMappedPages(value.bytes());
    const auto average = bindings_.find(MomentName(kAverage, name));
    if (average != bindings_.end()) RETURN_IF_ERROR(WriteRegion(average->second, value));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, HostTensor>> TrainingState::Weights() const {
  std::map<std::string, HostTensor> weights;
  for (const WeightDecision& w : prepared_->weights) {
    if (!w.trained && !statistics_.Has(w.name)) continue;
    const Region region = FindWhole(w.name);
    if (region.view.buffer == nullptr) continue;
    if (divided_weights_.contains(w.name)) {
      weights[w.name] = GatheredTensors::View(gathered_weights_, w.name);
      continue;
    }
    ASSIGN_OR_RETURN(HostTensor value, ReadRegion(region));
    weights[w.name] = w.trained ? value.CastTo(dtype_) : std::move(value);
  }
  return weights;
}

std::vector<StateTensor> TrainingState::Tensors(const OptimizerSpec& optimizer) const {
  std::vector<StateTensor> tensors;
  const auto add = [&](const std::string& name, bool of_model) {
    tensors.push_back({name, of_model, bindings_.at(name)});
  };
  const auto add_divided = [&](const std::string& name, const Type& type) {
    const auto whole = gathered_.find(name);
    tensors.push_back({name, false, whole != gathered_.end() ? whole->second : Region{{}, type}});
  };
  for (const WeightDecision& w : prepared_->weights) {
    if (w.trained || statistics_.Has(w.name)) tensors.push_back({w.name, true, FindWhole(w.name)});
  }
  for (const auto& [weight, rule] : rules_) {
    if (KeepsAverage(optimizer)) add(MomentName(kAverage, weight), true);
    for (const RuleState& state : FindRule(optimizer)->state) {
      for (const StoredState& stored : state.Stored(optimizer, weight, FindWhole(weight).type.shape, dtype_)) {
        const std::string name = MomentName(stored.state, weight);
        divided_.empty() ? add(name, false) : add_divided(name, stored.type);
      }
    }
  }
  for (const std::string& name : device_scalars_.memory.names()) add(name, false);
  return tensors;
}

Bindings TrainingState::FlatStatistics() const {
  const Type flat{dtype_, {statistics_elements()}};
  if (statistics_elements() == 0) return {};
  return {{kStatistics, {{statistics_.buffer(), 0}, flat}}, {kPending, {{pending_.buffer(), 0}, flat}}};
}

Bindings TrainingState::PendingStatistics(bool first) const {
  Bindings bindings;
  for (const StateUpdate& update : prepared_->model.state_updates) {
    bindings[update.output] = pending_.At(update.state);
    if (!first) bindings[update.state] = pending_.At(update.state);
    if (first && zeros_.buffer() != nullptr) bindings[update.state] = zeros_.At(update.state);
  }
  return bindings;
}

absl::Status TrainingState::StartStatisticsAtZero() {
  if (zeros_.buffer() != nullptr) return absl::OkStatus();
  for (const std::string& name : pending_.names()) zeros_.Add(name, bindings_.at(name).type);
  return zeros_.Allocate(backend_, "running statistics");
}

std::vector<RunningAverage> TrainingState::running_averages() const {
  std::vector<RunningAverage> averages;
  for (const StateUpdate& update : prepared_->model.state_updates) {
    const Region region = statistics_.At(update.state);
    averages.push_back({region.view.offset, region.type.bytes(), update.momentum});
  }
  return averages;
}

SessionMemory TrainingState::memory() const {
  const auto size = [](const Arena& arena) { return static_cast<int64_t>(arena.size()); };
  SessionMemory m{.parameters = size(params_),
                  .statistics = size(statistics_) + size(pending_) + size(zeros_) + size(device_scalars_.memory)};
  for (const auto& arena : frozen_.copied) m.parameters += size(*arena);
  m.parameters += frozen_.imported;
  m.mapped = frozen_.mapped;
  if (grads_.buffer() != nullptr) m.gradients = size(grads_);
  if (divides_gradients_) m.gradients = size(divided_grads_);
  for (const auto& arena : moments_) m.moments += size(*arena);
  return m;
}

}  // namespace onnxtrain
