// The parts of the state that a rank keeps and updates if ranks divide it (ZeRO).
#include <algorithm>
#include <utility>

#include "frontend/base/status.h"
#include "optim/step/state.h"
#include "optim/step/training_state.h"

namespace onnxtrain {
namespace {

// Returns a rank's slice of a unit of a flat tensor.
Region SliceOf(const Region& flat, const ShardUnit& unit, const Shard& shard) {
  const ShardRange range = RangeOf(unit, shard);
  const size_t offset = flat.view.offset + (unit.begin + range.begin) * DTypeSize(flat.type.dtype);
  return {{flat.view.buffer, offset}, {flat.type.dtype, {range.size()}}};
}

// Returns what `whole` has of a part.
Region RegionOf(const TrainingState::MomentPart& part, const Region& whole) {
  return {{whole.view.buffer, whole.view.offset + part.runs.begin * DTypeSize(part.type.dtype)}, part.type};
}

}  // namespace

std::vector<ShardUnit> TrainingState::WholeUnits(int ranks) const {
  std::vector<ShardUnit> units;
  for (const FlatGroup& g : groups_)
    units.push_back({g.name, units.size(), 0, g.elements, SliceElements(g.elements, ranks, slice_multiple())});
  return units;
}

std::vector<TrainingState::UnitPart> TrainingState::ListParts(const ShardUnit& unit, const Shard& shard) const {
  const ShardRange range = RangeOf(unit, shard);
  const int64_t first = unit.begin + range.begin, last = unit.begin + range.end;
  std::vector<UnitPart> parts;
  int64_t begin = 0;  // of the weight, in the group
  for (const auto& [weight, shape] : groups_[unit.group].members) {
    const int64_t from = std::max(first, begin), to = std::min(last, begin + NumElements(shape));
    if (from < to)
      parts.push_back({StrCat(unit.name, "/", weight), weight, shape, from - begin, from - first, to - from});
    begin += padded_elements(shape);
  }
  return parts;
}

std::vector<TrainingState::MomentPart> TrainingState::ListMomentParts(const RuleState& state,
                                                                      const Shard& shard) const {
  std::vector<MomentPart> moments;
  for (const ShardUnit& unit : units_) {
    for (const UnitPart& part : ListParts(unit, shard)) {
      for (const StoredState& stored : state.StoredPart(optimizer_, part.weight, part.shape, part.elements, dtype_)) {
        const int64_t elements = stored.type.elements();
        moments.push_back({MomentName(stored.state, part.name),
                           MomentName(stored.state, part.weight),
                           {part.begin / stored.block, elements, elements},
                           stored.type});
      }
    }
  }
  return moments;
}

std::vector<TrainingState::MomentPart> TrainingState::ListMomentParts(const Shard& shard) const {
  std::vector<MomentPart> moments;
  for (const RuleState& state : FindRule(optimizer_)->state) {
    for (MomentPart& part : ListMomentParts(state, shard)) moments.push_back(std::move(part));
  }
  return moments;
}

// Keeps the parts of a state that this rank updates.
absl::Status TrainingState::DivideBlocks(const RuleState& state, std::unique_ptr<Arena>* moments) {
  auto own = std::make_unique<Arena>();
  const std::vector<MomentPart> parts = ListMomentParts(state, shard_);
  for (const MomentPart& part : parts) own->Add(part.name, part.type);
  RETURN_IF_ERROR(own->Allocate(backend_, "moments"));
  for (const MomentPart& part : parts) {
    ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(RegionOf(part, bindings_.at(part.tensor))));
    RETURN_IF_ERROR(WriteRegion(own->At(part.name), value));
  }
  for (const std::string& name : (*moments)->names()) bindings_.erase(name);
  Expose(*own, &bindings_);
  *moments = std::move(own);
  return absl::OkStatus();
}

absl::Status TrainingState::DivideMoments(const OptimizerSpec& optimizer, const Shard& shard,
                                          std::vector<ShardUnit> units) {
  shard_ = shard;
  units_ = std::move(units);
  const auto& states = FindRule(optimizer)->state;
  for (size_t i = 0; i < states.size(); ++i) {
    divided_.emplace_back(states[i].name);
    if (updates_blocks_) {
      RETURN_IF_ERROR(DivideBlocks(states[i], &moments_[i]));
      continue;
    }
    auto slices = std::make_unique<Arena>();
    for (const ShardUnit& unit : units_)
      slices->Add(MomentName(states[i].name, unit.name), {dtype_, {RangeOf(unit, shard).size()}});
    RETURN_IF_ERROR(slices->Allocate(backend_, "moments"));
    for (const ShardUnit& unit : units_) {
      const Region& flat = bindings_.at(MomentName(states[i].name, groups_[unit.group].name));
      ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(SliceOf(flat, unit, shard)));
      RETURN_IF_ERROR(WriteRegion(slices->At(MomentName(states[i].name, unit.name)), value));
    }
    for (const FlatGroup& g : groups_) {
      bindings_.erase(MomentName(states[i].name, g.name));
      for (const auto& [weight, shape] : g.members) bindings_.erase(MomentName(states[i].name, weight));
    }
    Expose(*slices, &bindings_);
    moments_[i] = std::move(slices);
  }
  return absl::OkStatus();
}

absl::Status TrainingState::DivideGradients() {
  for (const FlatGroup& g : groups_) {
    bindings_.erase(GradName(g.name));
    for (const auto& [weight, shape] : g.members) bindings_.erase(GradName(weight));
  }
  grads_ = Arena();
  divides_gradients_ = true;
  for (const ShardUnit& unit : units_)
    divided_grads_.Add(GradName(unit.name), {dtype_, {RangeOf(unit, shard_).size()}});
  return divided_grads_.Allocate(backend_, "gradients");
}

// Whole weights keep their positions within their units.
absl::Status TrainingState::DivideWeights(const std::map<std::string, DividedWeight>& weights) {
  Arena kept;
  for (const auto& [name, rows] : weights) {
    kept.Add(ColumnsName(name), {dtype_, {rows.rows, rows.slice}});
    whole_types_[name] = bindings_.at(name).type;
  }
  for (const ShardUnit& unit : units_) {
    if (unit.weight.empty()) kept.Add(ParamName(unit.name), {dtype_, {unit.elements}});
  }
  RETURN_IF_ERROR(kept.Allocate(backend_, "weights"));
  for (const auto& [name, rows] : weights) bindings_[ColumnsName(name)] = kept.At(ColumnsName(name));
  std::map<std::string, Region> moved;
  for (const ShardUnit& unit : units_) {
    const FlatGroup& group = groups_[unit.group];
    const Region& flat = bindings_.at(ParamName(group.name));
    const bool whole = unit.weight.empty();
    const Region from =
        whole ? Region{Within(flat, unit.begin), {dtype_, {unit.elements}}} : SliceOf(flat, unit, shard_);
    const Region to = whole ? kept.At(ParamName(unit.name)) : OwnSlice(unit);
    ASSIGN_OR_RETURN(const HostTensor value, ReadRegion(from));
    RETURN_IF_ERROR(WriteRegion(to, value));
    for (const auto& [name, shape] : group.members) {
      const Region& old = bindings_.at(name);
      const size_t begin = from.view.offset, end = begin + from.type.bytes();
      if (whole && old.view.offset >= begin && old.view.offset < end)
        moved[name] = {{to.view.buffer, to.view.offset + old.view.offset - begin}, old.type};
    }
  }
  for (const auto& [name, region] : moved) bindings_[name] = region;
  for (const auto& [name, rows] : weights) bindings_.erase(name);
  for (const FlatGroup& g : groups_) bindings_.erase(ParamName(g.name));
  for (const ShardUnit& unit : units_) {
    if (unit.weight.empty()) bindings_[ParamName(unit.name)] = kept.At(ParamName(unit.name));
  }
  divided_weights_ = weights;
  params_ = std::move(kept);
  return absl::OkStatus();
}

Region TrainingState::OwnSlice(const ShardUnit& unit) const {
  if (unit.weight.empty()) {
    if (!divides_weights()) return SliceOf(bindings_.at(ParamName(groups_[unit.group].name)), unit, shard_);
    ShardUnit alone = unit;
    alone.begin = 0;
    return SliceOf(bindings_.at(ParamName(unit.name)), alone, shard_);
  }
  const Region& columns = bindings_.at(ColumnsName(unit.weight));
  return {Within(columns, unit.row * unit.slice), {dtype_, {RangeOf(unit, shard_).size()}}};
}

absl::Status TrainingState::AllocateGatheredWeights(const std::string& folder) {
  gathered_weights_ = std::make_shared<GatheredTensors>();
  for (const auto& [name, type] : whole_types_) gathered_weights_->Add(name, type);
  return gathered_weights_->Allocate(backend_, folder, "gathered weights");
}

BufferView TrainingState::gathered_row(const ShardUnit& unit) const {
  return Within(gathered_weights_->At(unit.weight), unit.row * unit.slice * shard_.size);
}

// Returns the region of a whole trained weight or statistic; without a buffer if it is divided and not gathered.
Region TrainingState::FindWhole(const std::string& weight) const {
  if (!divided_weights_.contains(weight)) return bindings_.at(weight);
  return gathered_weights_ != nullptr ? gathered_weights_->At(weight) : Region{{}, whole_types_.at(weight)};
}

// Writes this rank's columns of the whole weight.
absl::Status TrainingState::WriteColumns(const std::string& weight, const HostTensor& value) {
  for (const ShardUnit& unit : units_) {
    if (unit.weight != weight) continue;
    const size_t element = DTypeSize(dtype_);
    const ShardRange range = RangeOf(unit, shard_);
    const size_t begin = (unit.row * unit.slice * shard_.size + range.begin) * element;
    const BufferView to = OwnSlice(unit).view;
    if (range.size() > 0)
      RETURN_IF_ERROR(to.buffer->Write(to.offset, value.bytes().subspan(begin, range.size() * element)));
  }
  return absl::OkStatus();
}

std::vector<FlatGroup> TrainingState::shard_groups() const {
  std::vector<FlatGroup> slices;
  for (const ShardUnit& unit : units_) {
    const UpdateRule& rule = groups_[unit.group].rule;
    if (updates_blocks_) {
      for (const UnitPart& part : ListParts(unit, shard_))
        slices.push_back({part.name, part.elements, rule, {}, part.weight, part.shape});
      continue;
    }
    const int64_t elements = RangeOf(unit, shard_).size();
    if (elements > 0) slices.push_back({unit.name, elements, rule, {}});
  }
  return slices;
}

// A rule in blocks has the norm of single weights, as on one rank.
std::vector<FlatGroup> TrainingState::norm_groups() const {
  if (!updates_blocks_) return groups_;
  std::vector<FlatGroup> weights;
  for (const FlatGroup& g : groups_) {
    for (const auto& [name, shape] : g.members) weights.push_back({name, NumElements(shape), g.rule, {}});
  }
  return weights;
}

Bindings TrainingState::ShardBindings() const {
  Bindings bindings;
  const auto bind = [&](const std::string& name, const Region& flat, int64_t offset, int64_t elements) {
    bindings[name] = {Within(flat, offset), {dtype_, {elements}}};
  };
  for (const ShardUnit& unit : units_) {
    const std::string& group = groups_[unit.group].name;
    const Region weights = OwnSlice(unit);
    const Region gradient = divides_gradients_ ? divided_grads_.At(GradName(unit.name))
                                               : SliceOf(bindings_.at(GradName(group)), unit, shard_);
    bindings[ParamName(unit.name)] = weights;
    bindings[GradName(unit.name)] = gradient;
    for (const UnitPart& part : updates_blocks_ ? ListParts(unit, shard_) : std::vector<UnitPart>()) {
      bind(ParamName(part.name), weights, part.offset, part.elements);
      bind(GradName(part.name), gradient, part.offset, part.elements);
    }
  }
  for (const FlatGroup& g : divides_gradients_ ? std::vector<FlatGroup>() : norm_groups())
    bind(WholeGradName(g.name), bindings_.at(GradName(g.name)), 0, g.elements);
  return bindings;
}

std::vector<Region> TrainingState::divided_gradients() const {
  std::vector<Region> slices;
  for (const ShardUnit& unit : units_) slices.push_back(divided_grads_.At(GradName(unit.name)));
  return slices;
}

BufferView TrainingState::WeightsOf(const ShardUnit& unit) const {
  if (divides_weights()) return bindings_.at(ParamName(unit.name)).view;
  return Within(bindings_.at(ParamName(groups_[unit.group].name)), unit.begin);
}

BufferView TrainingState::gathered(const DividedMoment& moment) const {
  return Within(gathered_.at(MomentName(moment.state, groups_[moment.unit.group].name)), moment.unit.begin);
}

Region TrainingState::gathered(const MomentPart& part) const { return RegionOf(part, gathered_.at(part.tensor)); }

std::vector<TrainingState::DividedMoment> TrainingState::divided_moments() const {
  std::vector<DividedMoment> moments;
  if (updates_blocks_) return moments;
  for (const std::string& state : divided_) {
    for (const ShardUnit& unit : units_) moments.push_back({state, unit, bindings_.at(MomentName(state, unit.name))});
  }
  return moments;
}

absl::Status TrainingState::AllocateGathered(const OptimizerSpec& optimizer) {
  for (const RuleState& state : FindRule(optimizer)->state) {
    ASSIGN_OR_RETURN(whole_moments_.emplace_back(), LayOutMoment(optimizer, state, &gathered_));
  }
  return absl::OkStatus();
}

void TrainingState::ReleaseGathered() {
  whole_moments_.clear();
  gathered_.clear();
}

// Adds the parts of weights and moments in this rank's slice of the unit.
void TrainingState::AddParts(const ShardUnit& unit, std::vector<StateTensor>* parts) const {
  for (const UnitPart& part : ListParts(unit, shard_)) {
    const ElementRuns runs{.begin = part.begin, .length = part.elements, .stride = part.elements};
    const auto add = [&](const std::string& tensor, bool of_model, const Region& slice) {
      parts->push_back({PartName(tensor, runs), of_model, {Within(slice, part.offset), {dtype_, {part.elements}}}});
    };
    add(part.weight, true, OwnSlice(unit));
    if (updates_blocks_) continue;
    for (const std::string& state : divided_)
      add(MomentName(state, part.weight), false, bindings_.at(MomentName(state, unit.name)));
  }
}

std::vector<StateTensor> TrainingState::Parts() const {
  std::vector<StateTensor> parts;
  for (const ShardUnit& unit : units_) AddParts(unit, &parts);
  for (const MomentPart& part : divides_blocks() ? ListMomentParts(shard_) : std::vector<MomentPart>())
    parts.push_back({PartName(part.tensor, part.runs), false, bindings_.at(part.name)});
  if (shard_.rank > 0) return parts;
  const auto add_whole = [&](const std::string& name, bool of_model) {
    const Region& region = bindings_.at(name);
    const int64_t elements = region.type.elements();
    if (elements > 0)
      parts.push_back(
          {PartName(name, AllElements(elements)), of_model, {region.view, {region.type.dtype, {elements}}}});
  };
  for (const std::string& statistic : statistics_.names()) add_whole(statistic, true);
  for (const std::string& scalar : device_scalars_.memory.names()) add_whole(scalar, false);
  return parts;
}

}  // namespace onnxtrain
