// What the stages of one import share.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/known_values.h"
#include "frontend/onnx/import/scope.h"
#include "frontend/onnx/import/weight_table.h"

namespace onnxtrain {

// Resolves names to values while a graph is imported.

class SymbolTable {
 public:
  SymbolTable(Builder* builder, WeightTable* weights, ErrorList* errors)
      : builder_(*builder), weights_(*weights), errors_(*errors) {}

  // The value of a name in a scope or those around it; creates the values of initializers when they are first read.
  // Nothing where the node that defines it has failed; an invalid value where a function's caller leaves it out.
  std::optional<ImportValue> Find(ImportScope& scope, const std::string& name, const ParsedNode& reader);
  // The same for a tensor. Reports a list as an error of `reader` and then returns nothing.
  std::optional<Val> FindTensor(ImportScope& scope, const std::string& name, const ParsedNode& reader);
  // Whether everything that the node reads, in its bodies too, has been imported.
  bool CanRead(ImportScope& scope, const ParsedNode& node);
  // The values of the node's inputs, which CanRead has found.
  ImportValues FindInputs(ImportScope& scope, const ParsedNode& node);
  // Gives the node's outputs these values; missing ones become invalid.
  void Bind(ImportScope& scope, const ParsedNode& node, const ImportValues& results);

 private:
  Builder& builder_;
  WeightTable& weights_;
  ErrorList& errors_;
};

// Constants that carry the batch a model was exported for.

// Replaces the fixed batch by another one in the operands of nodes as they are imported: in the target shapes of
// Reshape, Expand and the like, and in what is concatenated with a batch. Does nothing where no batch is fixed.
class BatchUnfixer {
 public:
  // `fixed`: the batch of the file; 0: it is free.
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

// What nodes ask for besides their outputs.
struct NodeEffects {
  std::map<ValueId, ValueId> logits;  // prediction of a classifier → what it is the softmax of
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
