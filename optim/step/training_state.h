// Device memory that outlives a step: weights, gradients, moments, running statistics and scalars, in ONNX layout.
//
// The parameters of a group are slices of one flat tensor; gradients and moments have flat tensors of the same layout.
// Flat tensors and their slices are bound by name (training_graph.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/parallel/gathered_tensors.h"
#include "optim/parallel/running_averages.h"
#include "optim/parallel/shard.h"
#include "optim/step/device_scalars.h"
#include "optim/step/groups.h"
#include "optim/step/prepared_models.h"
#include "optim/step/rules/rule.h"
#include "optim/step/session.h"
#include "optim/step/state.h"
#include "optim/step/training_graph.h"

namespace onnxtrain {

// Returns the bytes of the tensors that TrainingState::Tensors lists, without counters and running statistics.
int64_t StateBytes(const OptimizerSpec& optimizer, const std::vector<WeightDecision>& weights);

class TrainingState {
 public:
  // `backend` must outlive the state.
  TrainingState(Backend& backend, DType dtype) : backend_(backend), dtype_(dtype) {}
  TrainingState(const TrainingState&) = delete;  // device scalars refer to its bindings

  // Allocates zeroed memory for everything but gradients and frozen weights. `prepared` must outlive the state.
  absl::Status LayOut(const OptimizerSpec& optimizer, const PreparedModel& prepared, bool scaled_loss);
  bool HasAllWeights(const ImportedModel& model) const;
  // Adds the weights of `model` that are still missing: those that this session does not change. Inference graphs may
  // read some that the training graph does not. Programs read frozen weights in place where the backend can
  // (Backend::Borrow), from `file` or else the imported values. Allocates memory for all others and, with `load`,
  // copies the values.
  absl::Status AddFrozen(const ImportedModel& model, const OnnxModel& file, bool load);
  bool IsFrozen(const std::string& weight) const { return frozen_.names.contains(weight); }
  // Allocates gradients, which only accumulation and Session::Gradients keep in memory.
  absl::Status EnsureGradients();

  // Returns true if the rule updates blocks of weights separately (UpdatesBlocks). Weights of a flat tensor then begin
  // at multiples of blocks.
  bool updates_blocks() const { return updates_blocks_; }
  // Returns the number of elements of which slices of flat tensors must be multiples, so that they have whole blocks.
  int64_t slice_multiple() const;
  // Returns the elements of a weight in a flat tensor, with the padding behind it.
  int64_t padded_elements(const Shape& weight) const;

  // Returns one unit per group, for DivideMoments among `ranks` ranks.
  std::vector<ShardUnit> WholeUnits(int ranks) const;
  // Keeps only the moments of the elements that this rank updates: its slices of `units`, which cover all weights. The
  // rule must not read whole weights, and averages must be off.
  absl::Status DivideMoments(const OptimizerSpec& optimizer, const Shard& shard, std::vector<ShardUnit> units);
  // Keeps only the gradients of the elements that this rank updates. Must follow DivideMoments.
  absl::Status DivideGradients();
  // Keeps only this rank's columns of these weights. Must follow DivideMoments with units that are rows of the weights.
  // Moves the other weights in memory.
  absl::Status DivideWeights(const std::map<std::string, DividedWeight>& weights);
  bool divides_weights() const { return !divided_weights_.empty(); }
  const std::map<std::string, DividedWeight>& divided_weights() const { return divided_weights_; }
  const Type& whole_type(const std::string& weight) const { return whole_types_.at(weight); }
  // Returns the elements of a unit that this rank updates.
  Region OwnSlice(const ShardUnit& unit) const;
  // Allocates whole weights (GatheredTensors), which Tensors and Weights list until ReleaseWeights.
  absl::Status AllocateGatheredWeights(const std::string& folder);
  BufferView gathered_row(const ShardUnit& unit) const;
  void ReleaseWeights() { gathered_weights_.reset(); }
  const Shard& shard() const { return shard_; }
  const std::vector<ShardUnit>& shard_units() const { return units_; }
  // Returns this rank's slices of the units, without empty ones; of a rule in blocks, the parts of weights in them.
  std::vector<FlatGroup> shard_groups() const;
  // Returns the groups whose gradients (WholeGradName) have the norm of all.
  std::vector<FlatGroup> norm_groups() const;
  // Returns the bindings of an apply program for shard_groups(). Must follow EnsureGradients or DivideGradients.
  Bindings ShardBindings() const;
  bool divides_gradients() const { return divides_gradients_; }
  std::vector<Region> divided_gradients() const;  // this rank's, by unit
  // Returns the elements of a unit within the flat weights.
  BufferView WeightsOf(const ShardUnit& unit) const;
  // A flat moment of a unit; this rank has a slice of it.
  struct DividedMoment {
    std::string state;
    ShardUnit unit;
    Region slice;
  };
  std::vector<DividedMoment> divided_moments() const;  // none with divides_blocks()
  // The state of a part of a weight in whole blocks.
  struct MomentPart {
    std::string name;    // in bindings() of the rank that has it
    std::string tensor;  // the whole one
    ElementRuns runs;    // in the whole tensor
    Type type;
  };
  bool divides_blocks() const { return updates_blocks_ && !divided_.empty(); }
  // Lists the parts of moments that a rank has, with divides_blocks().
  std::vector<MomentPart> ListMomentParts(const Shard& shard) const;
  Region gathered(const MomentPart& part) const;
  // Allocates memory for whole moments, which Tensors lists until Release.
  absl::Status AllocateGathered(const OptimizerSpec& optimizer);
  BufferView gathered(const DividedMoment& moment) const;  // of the unit
  void ReleaseGathered();

  // Sets weights by initializer name, in the stored shapes, and their averages to the same values. Frozen weights fail.
  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights);
  // Returns the weights and statistics that training changes.
  absl::StatusOr<std::map<std::string, HostTensor>> Weights() const;

  // Returns the tensors of a checkpoint: weights and statistics that training changes, averages, moments and counters.
  // Moments that are divided among ranks have no buffer until they are gathered.
  std::vector<StateTensor> Tensors(const OptimizerSpec& optimizer) const;
  // Returns this rank's parts of a checkpoint, after DivideMoments: its slices, and on rank 0 the tensors that every
  // rank has.
  std::vector<StateTensor> Parts() const;

  Backend& backend() const { return backend_; }
  DType dtype() const { return dtype_; }
  const Bindings& bindings() const { return bindings_; }
  // Return the flat gradients, after EnsureGradients, and the flat pending statistics; null if there are none.
  Buffer* gradients() const { return grads_.buffer(); }
  Buffer* pending_statistics() const { return statistics_elements() > 0 ? pending_.buffer() : nullptr; }
  // Returns the offset of the flat gradient of a group in gradients(), which need not be allocated yet.
  size_t gradient_offset(const FlatGroup& group) const { return grads_.At(GradName(group.name)).view.offset; }
  // Returns the memory that every micro program of a global batch writes: gradients, statistics, losses and correct
  // predictions. Must follow EnsureGradients; CPU only.
  std::vector<std::span<std::byte>> PendingOnHost() const;
  // Sets the gradients and the pending losses to zero, the result of an update without samples.
  absl::Status ClearPending();
  // Return the bindings of kStatistics and kPending for an apply program, and their number of elements.
  Bindings FlatStatistics() const;
  int64_t statistics_elements() const { return static_cast<int64_t>(statistics_.size() / DTypeSize(dtype_)); }
  // Makes first micro programs that are compiled later start from zero instead of the running statistics, which
  // RunningAverages adds.
  absl::Status StartStatisticsAtZero();
  bool statistics_start_at_zero() const { return zeros_.buffer() != nullptr; }
  std::vector<RunningAverage> running_averages() const;
  Buffer* running_statistics() const { return statistics_.buffer(); }
  // Returns the bindings of statistics for a micro program.
  Bindings PendingStatistics(bool first) const;

  const std::vector<FlatGroup>& groups() const { return groups_; }
  const std::map<std::string, UpdateRule>& rules() const { return rules_; }  // by trained parameter
  const std::vector<std::string>& scalar_names() const { return device_scalars_.memory.names(); }
  DeviceScalars& device_scalars() { return device_scalars_; }
  int64_t parameter_bytes() const { return static_cast<int64_t>(params_.size()); }  // of trained parameters
  SessionMemory memory() const;                                                     // of the state alone

 private:
  // Describes the part of a weight that a rank's slice of a unit has.
  struct UnitPart {
    std::string name;  // of the part
    std::string weight;
    Shape shape;                                  // of the weight
    int64_t begin = 0, offset = 0, elements = 0;  // first element in the weight, and in the slice
  };
  std::vector<UnitPart> ListParts(const ShardUnit& unit, const Shard& shard) const;
  absl::Status DivideBlocks(const RuleState& state, std::unique_ptr<Arena>* moments);
  std::vector<MomentPart> ListMomentParts(const RuleState& state, const Shard& shard) const;

  void LayOutParameters(const OptimizerSpec& optimizer);
  bool BorrowFrozen(const ImportedWeight& weight, const Type& type, const OnnxModel& file);
  void AddParts(const ShardUnit& unit, std::vector<StateTensor>* parts) const;
  absl::Status WriteColumns(const std::string& weight, const HostTensor& value);
  Region FindWhole(const std::string& weight) const;
  absl::StatusOr<std::unique_ptr<Arena>> LayOutMoment(const OptimizerSpec& optimizer, const RuleState& state,
                                                      Bindings* bindings) const;
  void Expose(const Arena& arena, Bindings* bindings) const;
  void ExposeMembers(const WeightGroup& group, const Arena& arena, const std::string& flat,
                     const std::function<std::string(const std::string&)>& name, Bindings* bindings) const;

  Backend& backend_;
  const DType dtype_;
  const PreparedModel* prepared_ = nullptr;
  OptimizerSpec optimizer_;
  bool updates_blocks_ = false;
  std::vector<WeightGroup> members_;  // by index of groups_
  std::vector<FlatGroup> groups_;
  std::map<std::string, UpdateRule> rules_;
  Arena params_, grads_, statistics_, pending_, zeros_;  // `zeros_`: with StartStatisticsAtZero, laid out like pending_
  DeviceScalars device_scalars_;
  std::vector<std::unique_ptr<Arena>> moments_;
  struct Frozen {
    std::set<std::string> names;
    std::vector<std::unique_ptr<Arena>> copied;
    std::vector<std::unique_ptr<Buffer>> borrowed;
    int64_t mapped = 0, imported = 0;  // borrowed bytes in mapped files, and of values that the import has converted
  };
  Frozen frozen_;
  Bindings bindings_;
  BufferView Within(const Region& flat, int64_t element) const {
    return {flat.view.buffer, flat.view.offset + element * DTypeSize(dtype_)};
  }

  Shard shard_;                   // of the moments
  std::vector<ShardUnit> units_;  // that are divided
  Arena divided_grads_;
  bool divides_gradients_ = false;
  std::map<std::string, DividedWeight> divided_weights_;
  std::map<std::string, Type> whole_types_;            // of these
  std::shared_ptr<GatheredTensors> gathered_weights_;  // on the host; tensors of Weights() share it
  std::vector<std::string> divided_;                   // states of moments that are divided among ranks
  std::vector<std::unique_ptr<Arena>> whole_moments_;
  Bindings gathered_;  // where whole_moments_ are
};

}  // namespace onnxtrain
