// Evaluates values that are known while a model is imported, such as shapes, bounds and scales.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "frontend/onnx/import/weight_table.h"
#include "frontend/ops/cost.h"

namespace onnxtrain {

// Tracks which values depend on feeds, and evaluates small values that do not depend on them on the host.
class KnownValues {
 public:
  // With `bound_folding`, the builder folds only small constants once their total size exceeds a limit.
  KnownValues(Builder* builder, WeightTable* weights, bool bound_folding)
      : builder_(*builder), weights_(*weights), bound_folding_(bound_folding) {}

  // Processes the nodes and inputs added to the graph since the last call. The queries below call it.
  void Update();
  // Returns true if v may hold elements for each sample of a batch. Scalars, and values computed only from scalars and
  // weights, do not.
  bool MayHoldBatch(Val v);
  // Returns the value of a constant, of a weight that is not state, or of a value computed from these; null otherwise.
  // The pointer is valid until the next weight is added.
  const HostTensor* Find(ValueId value);
  const HostTensor* Find(Val v) { return v.valid() ? Find(v.id()) : nullptr; }
  // Returns a value of one element as an integer. `what` names the value in messages.
  absl::StatusOr<int64_t> FindInt(const ImportValue& value, std::string_view what);

 private:
  std::optional<HostTensor> Evaluate(ValueId value);

  Builder& builder_;
  WeightTable& weights_;
  bool bound_folding_;
  std::vector<bool> depends_on_feed_, may_hold_batch_;  // by value
  std::map<ValueId, std::optional<HostTensor>> evaluated_;
  size_t constant_bytes_ = 0;
  HostBudget budget_;
};

}  // namespace onnxtrain
