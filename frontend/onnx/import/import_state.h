// Holds the state that the stages of one import share.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/scope.h"
#include "frontend/onnx/import/weight_table.h"

namespace onnxtrain {

// Resolves names to values while a graph is imported.

class SymbolTable {
 public:
  SymbolTable(Builder* builder, WeightTable* weights, ErrorList* errors)
      : builder_(*builder), weights_(*weights), errors_(*errors) {}

  // Returns the value of a name in a scope or its enclosing scopes; creates the value of an initializer when it is
  // first read. Returns nullopt if the node that defines the name has failed, and an invalid value if the caller of a
  // function omits it.
  std::optional<ImportValue> Find(ImportScope& scope, const std::string& name, const ParsedNode& reader);
  // Returns the tensor of a name, like Find. Reports a list as an error of `reader` and returns nullopt.
  std::optional<Val> FindTensor(ImportScope& scope, const std::string& name, const ParsedNode& reader);
  // Returns true if everything that the node reads, in its bodies too, has been imported.
  bool CanRead(ImportScope& scope, const ParsedNode& node);
  // Returns the values of the node's inputs. CanRead must have returned true.
  ImportValues FindInputs(ImportScope& scope, const ParsedNode& node);
  // Sets the values of the node's outputs; missing ones become invalid.
  void Bind(ImportScope& scope, const ParsedNode& node, const ImportValues& results);

 private:
  Builder& builder_;
  WeightTable& weights_;
  ErrorList& errors_;
};

// Replaces the batch that a model was exported for by another one in the operands of nodes during the import: in target
// shapes (Reshape, Expand …), and in constants that are concatenated with batched values. Does nothing if no batch is
// fixed.
class BatchUnfixer {
 public:
  // `fixed` is the batch of the file; 0 if it is free.
  BatchUnfixer(int64_t fixed, int64_t batch, Builder* builder, KnownValues* known, std::vector<std::string>* notes)
      : fixed_(fixed), batch_(batch), builder_(*builder), known_(*known), notes_(*notes) {}

  absl::Status UnfixNode(const ParsedNode& node, std::vector<Val>* inputs, Attrs* attrs);
  // Checks that every output that had the fixed batch has the new one.
  absl::Status CheckOutputs(const ParsedGraph& model, const InputShapes& shapes) const;

 private:
  absl::StatusOr<bool> UnfixShape(const ParsedNode& node, Val data, std::vector<int64_t>* target);
  bool RepeatsForBatch(const ParsedNode& node, Val data, int64_t lead);
  void UnfixConcat(std::vector<Val>* inputs, const Attrs& attrs);

  const int64_t fixed_, batch_;
  Builder& builder_;
  KnownValues& known_;
  std::vector<std::string>& notes_;
};

struct UpdatedState {
  ValueId state, next;
  double momentum;  // as in StateUpdate
};

// Side results of importing nodes.
struct NodeEffects {
  std::map<ValueId, ValueId> logits;  // prediction of a classifier → operand of its softmax
  std::vector<UpdatedState> updates;
  Val random_key;             // invalid: nothing draws random numbers
  bool mode_matters = false;  // some node depends on ImportOptions::training
};

struct ImportState {
  ImportState(const OnnxModel::Parsed& parsed, const ImportOptions& import_options, const LiveGraph& live_graph,
              const InputShapes& shapes, std::vector<std::string>* import_notes);
  ImportState(const ImportState&) = delete;
  ImportState& operator=(const ImportState&) = delete;

  const OnnxModel::Parsed& model;
  const ImportOptions& options;
  const LiveGraph& live;
  const FloatTypes types;
  Graph graph;
  Builder builder;
  WeightTable weights;
  FilledWeights filled_weights;
  KnownValues known;
  BatchUnfixer batch_unfixer;
  ErrorList errors;
  SymbolTable symbols;
  NodeEffects effects;
  ImportScope top;
};

}  // namespace onnxtrain
