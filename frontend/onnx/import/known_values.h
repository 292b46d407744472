// Values that are known while a model is imported: shapes, bounds, scales.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "frontend/onnx/import/weight_table.h"
#include "frontend/ops/cost.h"

namespace onnxtrain {

// Tracks which values depend on feeds, and evaluates small ones that do not on the host.
class KnownValues {
 public:
  // With `bound_folding`, constants beyond a total size stop the builder from folding any but small ones.
  KnownValues(Builder* builder, WeightTable* weights, bool bound_folding)
      : builder_(*builder), weights_(*weights), bound_folding_(bound_folding) {}

  // Takes note of what has been added to the graph since the last call. The queries below do this themselves.
  void Update();
  // Whether v holds something for each sample of a batch. A scalar does not, nor what is computed from scalars and
  // weights alone.
  bool MayHoldBatch(Val v);
  // The value of a constant, of a weight that is no state, or of what can be computed from them; null otherwise. The
  // pointer stays valid until the next weight is added.
  const HostTensor* Find(ValueId value);
  const HostTensor* Find(Val v) { return v.valid() ? Find(v.id()) : nullptr; }
  // A value of one element, converted to an integer. `what` names it in messages.
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
