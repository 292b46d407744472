// What outlives a step on the device: weights, gradients, moments, running statistics and slots, by name, in plain ONNX layout.
//
// Parameters of one group lie in one flat tensor, their gradients and moments in others of the same layout; each is named as a
// whole and by its members (training_graph.h has the names).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/backend.h"
#include "optim/groups.h"
#include "optim/prepare.h"
#include "optim/rules/rule.h"
#include "optim/session_memory.h"
#include "optim/slots.h"
#include "optim/state.h"
#include "optim/training_graph.h"

namespace onnxtrain {

class TrainingState {
 public:
  // `backend` must outlive it.
  TrainingState(Backend& backend, DType dtype) : backend_(backend), dtype_(dtype) {}
  TrainingState(const TrainingState&) = delete;  // slots refer to its bindings

  // Memory for everything but gradients and frozen weights, zeroed. `prepared` must outlive the state.
  absl::Status LayOut(const OptimizerSpec& optimizer, const PreparedModel& prepared, bool scaled_loss);
  // Memory for weights that are neither trained nor updated statistics, with their values. Inference graphs may have some
  // that the training graph has not.
  absl::Status AddFrozen(const ImportedModel& model);
  // Gradients have memory of their own only where windows are accumulated or somebody asks for them.
  absl::Status EnsureGradients();

  // By initializer name, in the stored shapes. The average of weights that are set is what they are.
  absl::Status SetWeights(const std::map<std::string, HostTensor>& weights);
  // Those that training changes.
  absl::StatusOr<std::map<std::string, HostTensor>> Weights() const;

  const Bindings& bindings() const { return bindings_; }
  // The statistics that an apply program commits, as two flat tensors, and how many numbers they are.
  Bindings FlatStatistics() const;
  int64_t statistics_elements() const { return static_cast<int64_t>(statistics_.size() / SizeOf(dtype_)); }
  // Where a micro program leaves running statistics and, unless it is the first of a window, finds them.
  Bindings PendingStatistics(bool first) const;

  const std::vector<FlatGroup>& groups() const { return groups_; }
  const std::map<std::string, UpdateRule>& rules() const { return rules_; }  // of each trained parameter
  Slots& slots() { return slots_; }
  int64_t parameter_bytes() const { return static_cast<int64_t>(params_.size()); }  // of trained ones
  SessionMemory memory() const;  // of these alone

 private:
  void LayOutParameters();
  absl::Status LayOutMoment(const RuleState& state);
  void Expose(const Arena& arena);
  void ExposeMembers(const WeightGroup& group, const Arena& arena, const std::string& flat,
                     const std::function<std::string(const std::string&)>& name);

  Backend& backend_;
  const DType dtype_;
  const PreparedModel* prepared_ = nullptr;
  std::vector<WeightGroup> members_;  // what each of groups_ consists of
  std::vector<FlatGroup> groups_;
  std::map<std::string, UpdateRule> rules_;
  Arena params_, grads_, statistics_, pending_;
  Slots slots_;
  std::vector<std::unique_ptr<Arena>> moments_, frozen_;
  Bindings bindings_;
};

}  // namespace onnxtrain
