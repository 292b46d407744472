// The weights of a model: initializers, constants and attributes that become inputs of the graph.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/live_graph.h"
#include "frontend/onnx/import/scope.h"

namespace onnxtrain {

// Weights that ConstantOfShape nodes fill.

// Finds them in the model's own graph.
//
// Models that were stripped of their weights for size (the ONNX project's own) fill them by ConstantOfShape nodes whose
// shape the file holds. A shape that is computed is no weight's; neither are masks, states and paddings, which other
// operands take.
class FilledWeights {
 public:
  FilledWeights(const ParsedGraph& graph, const LiveGraph& live, const FloatTypes& types)
      : graph_(graph), live_(live), types_(types) {}

  bool IsFilledWeight(const ParsedNode& node) const;
  // The weight of such a node, whose shape input is `extents` (null: unknown). Nothing where it is no float tensor of
  // several elements; an error above a size that a few bytes of a file should not make the importer allocate.
  absl::StatusOr<std::optional<HostTensor>> Fill(const Attrs& attrs, const HostTensor* extents);
  // How many weights were filled.
  int count() const { return count_; }

 private:
  bool OnlyFeedsWeightInputs(const std::string& name, int depth) const;

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
  bool updated = false;  // a node updates the state
};

// Whether the node is ai.onnx's Constant.
bool IsConstantNode(const ParsedNode& node);

// Decides which tensors of the model are weights, and adds an input to the graph for each. Initializers of functions
// and bodies, integers and numbers of formulas are constants.
class WeightTable {
 public:
  // `graph` is the model's own; all arguments must outlive the table.
  WeightTable(const ParsedGraph& graph, const LiveGraph& live, const FloatTypes& types, bool constant_factors,
              Builder* builder)
      : graph_(graph), live_(live), types_(types), constant_factors_(constant_factors), builder_(*builder) {}

  // Adds a weight that `reader` reads. The tensor has its final element type.
  Val Add(const std::string& name, HostTensor tensor, const ParsedNode& reader);
  // The value of an initializer of the scope's graph: a weight, or a constant that all readers share.
  Val ReadInitializer(const ImportScope& scope, const std::string& name, const HostTensor& tensor,
                      const ParsedNode& reader);
  // The value of a Constant node.
  absl::StatusOr<Val> ReadConstantNode(const ImportScope& scope, const ParsedNode& node);
  // A weight that a node holds in an attribute. It is named OUTPUT.ATTRIBUTE, where the exporter finds it again.
  Val AddFromAttribute(const ParsedNode& node, std::string_view attribute, const HostTensor& tensor);
  // A float weight that starts as `value`, which the initializer `integers` encodes. Invalid where `integers` is no
  // initializer of the model's graph or stands for another value already.
  Val AddDequantized(Val integers, const HostTensor& value, const ParsedNode& reader);
  // A weight for the output of an Identity over an initializer with several readers; invalid for any other node of the
  // model's graph.
  //
  // PyTorch's exporter merges initializers of equal bytes and reads the copies through Identity nodes. In a freshly
  // initialized model they are equal by chance (biases, statistics, cloned layers), so each copy is trained by itself.
  // Weights that are really tied are one initializer with several direct readers.
  Val SplitMergedCopy(const ParsedNode& node);

  // The weight behind a value, or null.
  ImportWeight* Find(Val v) { return v.valid() ? Find(v.id()) : nullptr; }
  ImportWeight* Find(ValueId value);
  std::vector<ImportWeight>& weights() { return weights_; }
  const std::vector<ImportWeight>& weights() const { return weights_; }
  // How many merged copies were split, and how many float tensors of bodies became constants.
  int split_copies() const { return split_copies_; }
  int body_tensors() const { return body_tensors_; }
  // The factors that the exporter derived, which are constants.
  const std::vector<std::string>& constant_factors() const { return derived_factors_; }

 private:
  WeightOrigin FindOrigin(const std::string& name) const;
  bool IsConstant(const ParsedGraph& graph, const std::string& name, const HostTensor& tensor) const;
  bool TakesNumber(const ParsedNode& node) const;
  bool IsNameTaken(const std::string& name) const;

  const ParsedGraph& graph_;
  const LiveGraph& live_;
  const FloatTypes& types_;
  const bool constant_factors_;
  Builder& builder_;
  std::vector<ImportWeight> weights_;
  std::map<ValueId, size_t> index_;
  std::map<std::pair<const ParsedGraph*, std::string>, Val> constants_;  // initializers; repeated bodies share them
  std::vector<std::string> derived_factors_;
  int split_copies_ = 0, body_tensors_ = 0;
};

}  // namespace onnxtrain
