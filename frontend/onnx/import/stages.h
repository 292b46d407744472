// Stages of an import, in the order in which import.cc runs them: outputs and feeds, nodes, results, and notes for
// users.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/graph/graph.h"
#include "frontend/onnx/import/control_flow.h"
#include "frontend/onnx/import/import_state.h"
#include "frontend/onnx/import/input_shapes.h"
#include "frontend/onnx/import/scope.h"
#include "frontend/ops/import/onnx_import.h"

namespace onnxtrain {

// Collects all unsupported operators of live nodes, and of the functions that they call, into one error with counts and
// node names. Needs no shapes. Bodies are checked when they are imported, because a branch may never be taken.
absl::Status CheckOperators(const OnnxModel::Parsed& model, const LiveGraph& live);

// Adds the model's live inputs to the graph and binds them in the top scope, as feeds (one for each element of a
// sequence or optional) or, for `options.fixed_inputs`, as constants. Notes unused inputs.
absl::Status CreateFeeds(const ImportOptions& options, const LiveGraph& live, const InputShapes& shapes,
                         const FloatTypes& types, Builder* builder, ImportScope* top, std::vector<std::string>* notes);

// Returns the names of the values that become outputs: the requested ones, or the model's own. Omits outputs of
// strings, with a note, if the model has other outputs.
std::vector<std::string> ChooseOutputs(const OnnxModel::Parsed& model, const ImportOptions& options,
                                       std::vector<std::string>* notes);

// Adds the values as outputs of the graph, a list as one output for each element. Returns the names of the graph's
// outputs in order. `batch` is the number of samples.
absl::StatusOr<std::vector<std::string>> BindOutputs(ImportState& state, const std::vector<std::string>& outputs,
                                                     int64_t batch);

// Adds the logits of outputs that are class probabilities as further outputs ("y.logits"). Returns their names by
// output and notes them.
std::map<std::string, Logits> ExposeLogits(ImportState& state, const std::vector<std::string>& outputs,
                                           std::vector<std::string>* notes);

// Adds an output with the new value of each state that a node updates ("running_mean.next").
std::vector<StateUpdate> BindStateUpdates(ImportState& state);

struct SweptGraph {
  Graph graph;
  std::vector<ValueId> values;  // by ValueId of the source graph: the value in `graph`, or kNoValue
};

// Copies the nodes and inputs that the outputs depend on. Keeps all feeds, first and in order, because they are the
// model's interface. Other inputs follow in the order in which the graph reads them, that is, by layer.
SweptGraph SweepGraph(const Graph& graph);

// Returns true if the node is a BatchNormalization whose scale is frozen, so that it stays in inference mode.
bool HasFrozenScale(const ImportOptions& options, const ParsedNode& node);

// Imports one node by the row of its ONNX operator (frontend/ops/import) and returns the values of its outputs. CanRead
// must have returned true.
ImportValuesOr ImportOperator(ImportState& state, ImportScope& scope, const ParsedNode& node, const OnnxOp& op);

// Imports nodes into the state's graph, including called functions and bodies. Collects errors of nodes in the state
// and skips nodes that depend on a failed one.
class GraphImporter {
 public:
  explicit GraphImporter(ImportState* state) : state_(*state) {}

  // Imports the live nodes of the top scope, or all nodes of another scope. Fails only if the import must stop at once.
  absl::Status ImportNodes(ImportScope& scope);

 private:
  ImportValuesOr ImportNode(ImportScope& scope, const ParsedNode& node);
  ImportValuesOr ImportControl(ControlFn control, ImportScope& scope, const ParsedNode& node, ImportValues inputs);
  ImportValuesOr ImportList(ImportScope& scope, const ParsedNode& node, const ImportValues& inputs);
  ImportValuesOr ImportGradient(ImportScope& scope, const ParsedNode& node);
  absl::StatusOr<std::optional<Val>> ImportHiddenWeight(ImportScope& scope, const ParsedNode& node);
  ImportValuesOr ImportCall(ImportScope& scope, const ParsedNode& node, const ParsedFunction& function);
  ImportValuesOr ImportBody(ImportScope& scope, const ParsedNode& node, BodyCall call);
  ImportValues FindOutputs(ImportScope& scope, size_t count, const ParsedNode& node);
  // Returns the extents of a NodeFailure.
  std::vector<int64_t> FindExtents(ImportScope& scope, const ParsedNode& node);
  absl::Status CountExpanded(int64_t nodes);

  ImportState& state_;
  int64_t expanded_ = 0;  // nodes of functions, bodies and gradients so far
};

// Appends notes about activations at outputs, weights and operators that training treats in a special way.
void NoteModel(const OnnxModel& model, const ImportState& state, const std::vector<std::string>& outputs,
               std::vector<std::string>* notes);

// Appends notes about weights that share bytes with others.
//
// One initializer with several readers is one weight: its gradients are summed. Two initializers with the same values
// are two weights (exporters fold the transpose of a tied embedding into a second initializer): equal bytes do not
// prove that they must stay equal.
void NoteTiedWeights(const WeightTable& weights, const LiveGraph& live, std::vector<std::string>* notes);

}  // namespace onnxtrain
