// Decides which initializers, constants and attributes of a model become weights, that is, inputs of the graph, and
// evaluates values that are known while a model is imported, such as shapes, bounds and scales.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/scope.h"
#include "frontend/ops/cost.h"
#include "frontend/ops/quantize_blocks.h"

namespace onnxtrain {

// Finds the weights of the top graph that ConstantOfShape nodes fill.
//
// Models whose weights were removed to save space (light models of the ONNX project) fill them by ConstantOfShape nodes
// with a stored shape. A node with a computed shape is not a weight, nor are masks, states and paddings, which no
// operator reads as weight operands.
class FilledWeights {
 public:
  FilledWeights(const ParsedGraph& graph, const LiveGraph& live, const FloatTypes& types)
      : graph_(graph), live_(live), types_(types) {}

  bool IsFilledWeight(const ParsedNode& node) const;
  // Returns the weight of such a node, whose shape operand is `extents` (null: unknown). Returns nullopt unless it is a
  // float tensor of several elements. Fails above a size limit, because a few bytes of a file can declare any size.
  absl::StatusOr<std::optional<HostTensor>> Fill(const Attrs& attrs, const HostTensor* extents);
  // Returns the number of filled weights.
  int count() const { return count_; }

 private:
  const ParsedGraph& graph_;
  const LiveGraph& live_;
  const FloatTypes& types_;
  int count_ = 0;
  int64_t bytes_ = 0;
};

struct ImportWeight {
  ValueId value = kNoValue;
  std::string name;
  HostTensor tensor;
  std::string consumer;  // op_type and source of the first node that computes with it
  std::string alias;     // as in ImportedWeight
  FixedWeight fixed = FixedWeight::kNo;
  bool state = false;    // non-trained state, such as BatchNorm statistics
  bool stored = false;   // never trained: numbers and scales that the graph reads as the file stores them
  bool updated = false;  // a node updates the state
};

bool IsConstantNode(const ParsedNode& node);

// Decides which tensors of the model are weights, and adds a graph input for each. Initializers of functions and
// bodies, integers and scalars of formulas are constants.
class WeightTable {
 public:
  // `graph` is the top graph. Beside low-rank updates, `edits` may replace weights by blocks, and matrices in half
  // precision stay as stored, unless the options name them. All arguments must outlive the table.
  WeightTable(const ParsedGraph& graph, const LiveGraph& live, const FloatTypes& types, const ImportOptions& options,
              const ModelEdits& edits, Builder* builder);

  // Adds a weight that `reader` reads. `tensor` must have its final element type.
  Val Add(const std::string& name, HostTensor tensor, const ParsedNode& reader);
  // Returns the value of an initializer of the scope's graph: a weight, or a constant that all readers share.
  Val ReadInitializer(const ImportScope& scope, const std::string& name, const HostTensor& tensor,
                      const ParsedNode& reader);
  // Returns true for an initializer that the graph reads as the file stores it: one of integers that stay integers, or
  // their scales and zero points.
  bool IsStored(const std::string& name) const { return stored_.contains(name); }
  // Returns the value of a Constant node.
  absl::StatusOr<Val> ReadConstantNode(const ImportScope& scope, const ParsedNode& node);
  // Adds the weight in an attribute of a node. Its name is OUTPUT.ATTRIBUTE, by which the export finds the attribute.
  Val AddFromAttribute(const ParsedNode& node, std::string_view attribute, const HostTensor& tensor);
  // Adds a float weight with the initial value `value`, the dequantized initializer `integers`. Returns an invalid
  // value if `integers` is not an initializer of the top graph, or already has a weight with another value.
  Val AddDequantized(Val integers, const HostTensor& value, const ParsedNode& reader);
  // Adds a weight for the output of an Identity of an initializer with several readers. Returns an invalid value for
  // any other node.
  //
  // PyTorch's exporter merges initializers with equal bytes and reads the copies through Identity nodes. In a freshly
  // initialized model they are equal by chance (biases, statistics, cloned layers), so each copy is a separate weight.
  // Tied weights are one initializer with several direct readers.
  Val SplitMergedCopy(const ParsedNode& node);

  // Returns the weight of a graph input, or null.
  ImportWeight* Find(Val v) { return v.valid() ? Find(v.id()) : nullptr; }
  ImportWeight* Find(ValueId value);
  std::vector<ImportWeight>& weights() { return weights_; }
  const std::vector<ImportWeight>& weights() const { return weights_; }
  // The numbers of merged copies that were split, and of float tensors in bodies that became constants.
  int split_copies() const { return split_copies_; }
  int body_tensors() const { return body_tensors_; }
  // Returns the names of the factors that the exporter derived, which are constants.
  const std::vector<std::string>& constant_factors() const { return derived_factors_; }

 private:
  // Adds a tensor that the graph reads as stored and that is never trained.
  Val AddStored(const std::string& name, const HostTensor& tensor, const ParsedNode& reader);
  // Adds the tensors of a weight that is replaced by blocks.
  QuantizedOperands AddBlocks(const std::string& name, const StoredBlocks& blocks, const ParsedNode& reader);
  // Adds a weight that becomes floats, or floats of one that blocks replace or that stays in half precision.
  Val AddMapped(const std::string& name, const HostTensor& tensor, const ParsedNode& reader);
  bool StaysHalf(const std::string& name, const HostTensor& tensor) const;
  WeightOrigin FindOrigin(const std::string& name) const;
  bool IsConstant(const ParsedGraph& graph, const std::string& name, const HostTensor& tensor) const;
  bool TakesNumber(const ParsedNode& node) const;
  bool IsNameTaken(const std::string& name) const;

  const ParsedGraph& graph_;
  const LiveGraph& live_;
  const FloatTypes& types_;
  const ImportOptions& options_;
  const ModelEdits& edits_;
  Builder& builder_;
  std::vector<ImportWeight> weights_;
  std::map<ValueId, size_t> index_;
  std::map<std::pair<const ParsedGraph*, std::string>, Val> constants_;  // constants by graph and name; copies of a
                                                                         // body share them
  std::vector<std::string> derived_factors_;
  std::unordered_set<std::string> stored_;
  int split_copies_ = 0, body_tensors_ = 0;
};

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
